#!/usr/bin/env bash
# Boots a Debian of its own with systemd, installs Tine there as docs/deploy.md
# says, and asserts what the unit promises: it starts and answers, a reload
# changes nothing else, instances outlive restarts and crashes, and a stop leaves
# nothing. Needs root on Linux, debootstrap, Go, curl. Everything it makes is under
# one temporary folder and gone at the end, also after a failure.
#
#   TINE_BIN       a static tine to try, with tine-sandbox beside it; default: built from this tree
#   TRY_ROOT_TAR   where to keep the bare Debian between runs; default: nowhere
#   TRY_KEEP_LOG   where to copy the journal to; default: printed on failure only
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(cd "$here/../.." && pwd)
tools=${TINE_TEST_TOOLS:-$tree/.cache/tools}

[ "$(id -u)" = 0 ] || { echo "try: needs root, to boot a system of its own" >&2; exit 1; }
for p in debootstrap unshare nsenter pivot_root curl go; do
  command -v "$p" >/dev/null || { echo "try: $p not found on PATH; install it" >&2; exit 1; }
done

work=$(mktemp -d /tmp/tine-systemd.XXXXXX)
root=$work/root
unified=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$unified" ] || { echo "try: no cgroup2 is mounted" >&2; exit 1; }
group=$unified/${work##*/}
booted=''
init=''

finish() {
  local status=$?
  set +e
  if [ -n "$init" ]; then
    [ -z "${TRY_KEEP_LOG:-}" ] || inside journalctl --no-pager >"$TRY_KEEP_LOG" 2>&1
    [ "$status" = 0 ] || inside journalctl -u tine --no-pager -n 60 >&2
  fi
  # The kernel ends every process of a process namespace with its first one, and
  # its mounts with the last.
  [ -z "$init" ] || kill -KILL "$init" 2>/dev/null
  [ -z "$booted" ] || { kill -KILL "$booted"; wait "$booted"; } 2>/dev/null
  for _ in $(seq 100); do
    [ -d "$group" ] || break
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
    sleep 0.05
  done
  rm -rf --one-file-system "$work"
  if [ "$status" = 0 ]; then echo "try: all as promised"; else echo "try: FAILED" >&2; fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

. "$here/../try-lib.sh"
inside() { nsenter -t "$init" -m -p -u -i -n -C -r"/proc/$init/root" -w"/proc/$init/root" "$@"; }
get() { nsenter -t "$init" -n curl -fsS --max-time 10 "http://127.0.0.1:8463$1"; }
tine() { inside tine --state /var/lib/tine "$@"; }
main_pid() { inside systemctl show --property=MainPID --value tine; }
same() { [ "$1" = "$2" ] || fail "$3: got \"$1\", want \"$2\""; }
running() { inside test -d "/proc/$1" || fail "process $1, $2, is gone"; }

say "building"
bin=${TINE_BIN:-}
if [ -z "$bin" ]; then
  bin=$work/tine
  (cd "$tree" && CGO_ENABLED=0 go build -trimpath -o "$work/" ./cmd/...)
fi
(cd "$tree" && CGO_ENABLED=0 go build -trimpath -o "$work/server" ./e2e/badserver)

tar=${TRY_ROOT_TAR:-}
mkdir "$root"
if [ -n "$tar" ] && [ -f "$tar" ]; then
  tar -C "$root" -xf "$tar"
else
  say "making a Debian, which takes a minute"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,libnss-systemd,procps,ca-certificates,nodejs \
    bookworm "$root" >"$work/debootstrap.log" 2>&1 || { tail -n 20 "$work/debootstrap.log" >&2; fail "debootstrap failed"; }
  [ -z "$tar" ] || tar -C "$root" -cf "$tar" .
fi

say "installing as docs/deploy.md says"
install -m 0755 "$bin" "$(dirname "$bin")/tine-sandbox" "$root/usr/local/bin/"
install -D -m 0755 "$here/sweep" "$root/usr/local/lib/tine/sweep"
install -D -m 0644 "$here/tine.sysusers" "$root/etc/sysusers.d/tine.conf"
install -m 0644 "$here/tine.service" "$root/etc/systemd/system/tine.service"
chroot "$root" systemd-sysusers
install -d -m 0750 -o root -g "$(awk -F: '$1 == "tine" { print $3 }' "$root/etc/group")" "$root/etc/tine"
install -m 0755 "$work/server" "$root/usr/local/bin/server"
echo 'GREETING=hello' >"$root/etc/tine/tine.env"
cat >"$root/etc/tine/tine.yaml" <<'YAML'
servers:
  clock: {builtin: time}
  kept: {command: server, scope: shared}
YAML
node=
if [ -d "$tools/node_modules/@modelcontextprotocol/server-memory" ]; then
  node=yes
  mkdir -p "$root/opt/tools"
  cat >>"$root/etc/tine/tine.yaml" <<'YAML'
  graph:
    command: node
    args: [/opt/tools/node_modules/@modelcontextprotocol/server-memory/dist/index.js]
    env: {MEMORY_FILE_PATH: /var/lib/tine/graph.jsonl}
    scope: shared
YAML
fi
chmod 0644 "$root/etc/tine/tine.yaml"

say "booting it"
cat >"$work/boot" <<'BOOT'
#!/bin/bash
set -eu
root=$1 tools=$2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for d in null zero full random urandom tty; do
  touch "$root/dev/$d"
  mount --bind "/dev/$d" "$root/dev/$d"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
if [ -d "$root/opt/tools" ]; then mount --bind -o ro "$tools" "$root/opt/tools"; fi
hostname tine-try
cd "$root"
mkdir -p old
pivot_root . old
exec chroot . /bin/sh -c 'umount -l /old; exec env -i container=tine-try PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /sbin/init systemd.unit=multi-user.target'
BOOT
mkdir "$group"
bash -c 'echo $$ >"$1/cgroup.procs" && exec unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup bash "$2" "$3" "$4"' \
  boot "$group" "$work/boot" "$root" "$tools" </dev/null >"$work/boot.log" 2>&1 &
booted=$!
for _ in $(seq 100); do
  read -r init _ <"/proc/$booted/task/$booted/children" 2>/dev/null || true
  [ -z "$init" ] || [ "$(cat "/proc/$init/comm" 2>/dev/null)" != systemd ] || break
  kill -0 "$booted" 2>/dev/null || { cat "$work/boot.log" >&2; init=; fail "it did not boot"; }
  sleep 0.1
done
[ -n "$init" ] || fail "it did not boot"
up() { case $(inside systemctl is-system-running) in running | degraded) ;; *) return 1 ;; esac; }
until_true "boot" up
say "$(inside systemctl --version | head -n 1), $(inside systemctl is-system-running)"

say "start"
inside systemd-analyze verify tine.service
inside systemctl enable --now --quiet tine
until_true "healthz" get /healthz
first=$(main_pid)
same "$(inside stat -c %U:%a /var/lib/tine)" tine:700 "owner of the state folder"
same "$(inside ps -o user= -p "$first")" tine "user of the gateway"

say "calls"
get /readyz >/dev/null
has Vienna tine call clock__get_current_time timezone=Europe/Vienna
child=$(tine call kept__remember key=a value=b)
running "$child" "the server that remembers"
same "$(tine call kept__recall key=a)" b "what was remembered"
if [ -n "$node" ]; then
  tine call graph__create_entities 'entities=[{"name":"Ada","entityType":"person","observations":["wrote the first program"]}]' >/dev/null
  graph=$(inside pgrep -f server-memory)
  say "a server on Node.js runs under the unit's restrictions"
fi

say "reload"
sed -i 's/^servers:/servers:\n  more: {builtin: everything}/' "$root/etc/tine/tine.yaml"
inside systemctl reload tine
until_true "the new server" tine servers show more
same "$(main_pid)" "$first" "the gateway after a reload"

# adopted checks that another gateway took over and nothing else changed.
adopted() {
  until_true "healthz after $1" get /healthz
  [ "$(main_pid)" != "$first" ] || fail "$1: the same gateway"
  first=$(main_pid)
  running "$child" "the server that remembers, after $1"
  same "$(tine call kept__recall key=a)" b "what was remembered, after $1"
  same "$(tine call kept__remember key=a value=b)" "$child" "the process that remembers, after $1"
  [ -z "$node" ] || running "$graph" "the server on Node.js, after $1"
  say "after $1: another gateway, process $first, adopted the same servers"
}
inside systemctl restart tine
adopted "a restart"

inside systemctl kill --kill-whom=main --signal=KILL tine
until_true "the restart by systemd" bash -c "[ \"\$(nsenter -t $init -m -p -C -r/proc/$init/root systemctl show --property=NRestarts --value tine)\" = 1 ]"
adopted "kill -9"

say "a config that can't be used"
cp "$root/etc/tine/tine.yaml" "$work/good.yaml"
echo 'nonsense: true' >>"$root/etc/tine/tine.yaml"
inside systemctl restart tine || true
failed() { inside systemctl is-failed tine; }
until_true "the service fails" failed
running "$child" "the server that remembers, without a gateway"
cp "$work/good.yaml" "$root/etc/tine/tine.yaml"
inside systemctl reset-failed tine
inside systemctl start tine
adopted "a config that was mended"

say "stop"
inside systemctl stop tine
same "$(inside pgrep -u tine || true)" "" "what is left after a stop"
same "$(inside systemctl show --property=Result --value tine)" success "result of the stop"

inside systemctl start tine
until_true "healthz after a stop" get /healthz
other=$(tine call kept__remember key=a value=c)
[ "$other" != "$child" ] || fail "the old process is still there"
inside systemctl disable --now --quiet tine
same "$(inside pgrep -u tine || true)" "" "what is left after the last stop"
