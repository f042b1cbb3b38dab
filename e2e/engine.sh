#!/usr/bin/env bash
# Finds the container engines that the tests use, or starts them: Docker and
# Podman. One that runs already is used as it is and never stopped.
#
#   engine.sh start          start what does not answer, load the images, and keep it
#   engine.sh stop           stop what was started, and nothing else
#   engine.sh status         say which engines answer
#   engine.sh load           load the images of images.sh where they are missing
#   engine.sh with COMMAND   start and load, run the command, stop
#   engine.sh answers NAME   succeed if docker or podman answers
#
# Sockets are given to the tests as TINE_TEST_DOCKER and TINE_TEST_PODMAN, and are
# written to .cache/tools/engine/env for those that are run by hand. A reader who
# sets these variables has these engines used.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup-lib.sh"

run=$dest/engine # what was started: NAME.pid, NAME.log
env=$run/env

# api SOCKET PATH [CURL-OPTIONS] asks an engine.
api() { curl -sS --fail --max-time "${limit:-10}" --unix-socket "$1" "http://engine$2" "${@:3}"; }

ours_docker=/var/run/docker.sock
ours_podman=/run/podman/podman.sock

# sockets NAME lists where one may listen.
sockets() {
  local host=${DOCKER_HOST:-}
  case $1 in
  docker) printf '%s\n' "${TINE_TEST_DOCKER:-}" "${host#unix://}" "$ours_docker" "${XDG_RUNTIME_DIR:-/run}/docker.sock" "$HOME/.docker/run/docker.sock" ;;
  podman) printf '%s\n' "${TINE_TEST_PODMAN:-}" "$ours_podman" "${XDG_RUNTIME_DIR:-/run}/podman/podman.sock" ;;
  esac
}

# socket NAME prints where one answers.
socket() {
  local s
  while read -r s; do
    if [ -S "$s" ] && [ "$(api "$s" /_ping 2>/dev/null)" = OK ]; then
      echo "$s"
      return
    fi
  done < <(sockets "$1")
  return 1
}

# alive NAME reports whether what we started still runs. Another process may have
# its number by now.
alive() {
  local pid
  pid=$(cat "$run/$1.pid" 2>/dev/null) && grep -qsx "$2" "/proc/$pid/comm"
}
program() { [ "$1" = docker ] && echo dockerd || echo podman; }

# launch NAME COMMAND... starts an engine that outlives this script and waits until
# it answers. It must not hold the lock of those who use it.
launch() {
  local name=$1 pid tries
  shift
  # In a folder that stays: Podman starts nothing in one that was removed.
  setsid env -C / "$@" >"$run/$name.log" 2>&1 </dev/null 9>&- &
  pid=$!
  echo "$pid" >"$run/$name.pid"
  for ((tries = 0; tries < 300; tries++)); do
    if socket "$name" >/dev/null; then return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.2
  done
  echo "engine: $name does not answer; the end of its log:" >&2
  tail -n 30 "$run/$name.log" >&2
  halt "$name"
  return 1
}

launch_docker() {
  # On a minimal machine nothing mounts this.
  mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
  rm -f "$run/dockerd.pid"
  launch docker dockerd --host "unix://$ours_docker" --pidfile "$run/dockerd.pid"
}

# within LIMIT MOST prints the limit where it is a number, and no more than what
# the file MOST says.
within() { if [ "$1" = unlimited ] || [ "$1" -gt "$(cat "$2")" ]; then cat "$2"; else echo "$1"; fi; }

launch_podman() {
  local files processes init
  mkdir -p "$(dirname "$ours_podman")"
  rm -f "$ours_podman"
  # By itself it gives containers higher limits than its own, which a root without
  # every capability can't, and looks for an init where Debian has none.
  files=$(within "$(ulimit -Hn)" /proc/sys/fs/nr_open)
  processes=$(within "$(ulimit -Hu)" /proc/sys/kernel/pid_max)
  init=$(command -v tini-static || command -v catatonit || echo /usr/libexec/podman/catatonit)
  cat >"$run/containers.conf" <<CONF
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
[engine]
init_path = "$init"
CONF
  CONTAINERS_CONF=$run/containers.conf launch podman podman system service --time=0 "unix://$ours_podman"
}

# bring_up NAME has an engine answer, or says why there is none.
bring_up() {
  local name=$1
  if socket "$name" >/dev/null; then return; fi
  if [ "$(id -u)" != 0 ] || ! on_path "$(program "$name")"; then
    lacking "no $name answers, and only root can start one, with $(program "$name") on PATH; start one, or run make setup as root on Debian"
    return
  fi
  echo "engine: starting $name"
  "launch_$name" || lacking "can't start $name"
}

start() {
  local name
  if on_path flock; then # two at once would start two
    exec 8>"$run/start.lock"
    flock 8
  fi
  for name in docker podman; do bring_up "$name" 8>&-; done
  write_env
  load
  exec 8>&-
}

# write_env notes which engines answer.
write_env() {
  local s
  {
    if s=$(socket docker); then echo "TINE_TEST_DOCKER='$s'"; fi
    if s=$(socket podman); then echo "TINE_TEST_PODMAN='$s'"; fi
  } >"$env.$$"
  mv "$env.$$" "$env"
}

# load gives every engine every image that it lacks or has an older one of.
load() {
  local name s tar image key had
  for name in docker podman; do
    s=$(socket "$name") || continue
    for tar in "$dest"/images/*.key; do
      image=$(basename "$tar" .key)
      key=$(cat "$tar")
      [ "$(property "$s" "$image" 'tine\.test')" != "$key" ] || continue
      had=$(property "$s" "$image" Id)
      echo "engine: $name loads tine-test/$image"
      if ! limit=300 api "$s" '/images/load?quiet=1' -X POST -H 'Content-Type: application/x-tar' -H 'Expect:' -T "$dest/images/$image.tar" >"$run/load.log" 2>&1 ||
        [ "$(property "$s" "$image" 'tine\.test')" != "$key" ]; then
        echo "engine: $name did not load $dest/images/$image.tar:" >&2
        tail -n 5 "$run/load.log" >&2
        return 1
      fi
      # The older one has no name now, and goes unless something runs on it.
      [ -z "$had" ] || api "$s" "/images/$had" -X DELETE >/dev/null 2>&1 || true
    done
  done
}

# property SOCKET IMAGE NAME prints what an engine says of the image it has.
property() { api "$1" "/images/tine-test/$2:latest/json" 2>/dev/null | sed -n 's/.*"'"$3"'": *"\([^"]*\)".*/\1/p' | head -n 1 || true; }

# halt NAME stops what we started, with what tests left in it.
halt() {
  local name=$1 pid tries
  pid=$(cat "$run/$name.pid" 2>/dev/null) || return 0
  if alive "$name" "$(program "$name")"; then
    # Podman's containers have no parent process and would stay.
    if [ "$name" = podman ]; then
      podman ps --all --quiet --filter label=tine.gateway | xargs -r podman rm --force --time 0 >/dev/null 2>&1 || true
    fi
    kill -TERM "$pid" 2>/dev/null || true
    for ((tries = 0; tries < 150; tries++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.2
    done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$run/$name.pid"
}

stop() {
  rm -f "$run/keep"
  halt docker
  halt podman
  write_env
}

status() {
  local name s
  for name in docker podman; do
    if s=$(socket "$name"); then
      echo "$name answers at $s$(alive "$name" "$(program "$name")" && echo ", started by the tests")"
    else
      echo "$name does not answer"
    fi
  done
}

# last stops what was started for commands once no command uses it any more.
last() {
  local status=$?
  exec 9>&-
  if [ ! -e "$run/keep" ] && on_path flock; then
    (flock --nonblock --exclusive 9 && stop) 9>"$run/users.lock" || true
  fi
  exit "$status"
}

with() {
  trap last EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  exec 9>"$run/users.lock"
  ! on_path flock || flock --shared 9
  start
  set -a
  . "$env"
  set +a
  "$@" 9>&-
}

case ${1:-} in
start)
  start
  touch "$run/keep"
  ;;
stop) stop ;;
status) status ;;
load) load ;;
answers) socket "$2" >/dev/null ;;
with) shift && with "$@" ;;
*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
