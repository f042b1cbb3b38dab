#!/usr/bin/env bash
# Runs compose.yaml with the image that "make image" makes and asserts what it
# promises: a small image without shell or root, healthy by itself, closed without
# the token, state that outlives restarts and crashes, nothing left after "down
# -v". Uses the Docker engine that answers; without one, and as root, it starts an
# engine of its own in namespaces of its own and ends it. Everything it makes is
# gone at the end, also after a failure.
#
#   TINE_BIN   a static tine to put into the image, with tine-sandbox beside it; default: what make image builds
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(cd "$here/../.." && pwd)
for p in docker curl go; do
  command -v "$p" >/dev/null || { echo "try: $p not found on PATH; install it" >&2; exit 1; }
done

work=$(mktemp -d /tmp/tine-compose.XXXXXX)
project=${work##*/}
project=${project//[^a-zA-Z0-9]/}
project=${project,,}
engine=''
loaded=''
near=() # how to reach what the engine publishes

. "$here/../try-lib.sh"
same() { [ "$1" = "$2" ] || fail "$3: got \"$1\", want \"$2\""; }

if docker compose version >/dev/null 2>&1; then
  composer=(docker compose)
elif command -v docker-compose >/dev/null; then
  composer=(docker-compose)
else
  fail "neither docker compose nor docker-compose is there; install one"
fi
compose() { "${composer[@]}" -p "$project" -f "$work/compose.yaml" -f "$work/more.yaml" "$@"; }

finish() {
  local status=$?
  set +e
  if [ "$status" != 0 ] && [ -f "$work/more.yaml" ]; then compose logs --no-color 2>&1 | tail -n 40 >&2; fi
  if [ -n "$loaded" ]; then
    [ ! -f "$work/more.yaml" ] || compose down -v --remove-orphans >/dev/null 2>&1
    docker rm -fv "$project-bare" >/dev/null 2>&1
    docker rmi "$image" >/dev/null 2>&1
    for name in "${names[@]}"; do # others may have had an image of that name
      if [ -n "${before[$name]}" ]; then docker tag "${before[$name]}" "$name"; else docker rmi "$name"; fi
    done >/dev/null 2>&1
  fi
  if [ -n "$engine" ]; then
    kill "$engine" 2>/dev/null
    wait "$engine" 2>/dev/null
    find /sys/fs/cgroup -depth -type d -path "*/$project*" -exec rmdir {} + 2>/dev/null
  fi
  rm -rf --one-file-system "$work"
  if [ "$status" = 0 ]; then echo "try: all as promised"; else echo "try: FAILED" >&2; fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

if ! docker version >/dev/null 2>&1; then
  if [ "$(id -u)" != 0 ] || ! command -v dockerd >/dev/null; then fail "no Docker engine answers; start one"; fi
  say "starting a Docker engine"
  export DOCKER_HOST=unix://$work/docker.sock
  unset DOCKER_CONTEXT
  unshare --net --mount bash -c 'ip link set lo up && exec dockerd "$@"' dockerd --host "$DOCKER_HOST" --bridge none \
    --data-root "$work/data" --exec-root "$work/run" --pidfile "$work/pid" --cgroup-parent "/$project" >"$work/engine.log" 2>&1 &
  engine=$!
  alive() { kill -0 "$engine" 2>/dev/null || { tail -n 20 "$work/engine.log" >&2; fail "the engine ended"; }; docker version; }
  until_true "the engine" alive
  near=(nsenter -t "$engine" -n)
fi
say "engine $(docker version --format '{{.Server.Version}}'), $("${composer[@]}" version --short | head -n 1)"

say "making the image"
tar=$tree/dist/tine-image.tar
if [ -n "${TINE_BIN:-}" ]; then
  tar=$work/image.tar
  (cd "$tree" && go run -C tools ./image -binary "$TINE_BIN" -tag "$project:try" -also "" -o "$tar")
else
  make -C "$tree" image
fi
image=$project:try
mapfile -t names < <(tar -xOf "$tar" manifest.json | sed 's/.*"RepoTags":\[\([^]]*\)\].*/\1/' | tr -d '"' | tr ',' '\n')
declare -A before
for name in "${names[@]}"; do before[$name]=$(docker images -q "$name"); done
loaded=yes
docker load -qi "$tar" >/dev/null
[ "${names[0]}" = "$image" ] || docker tag "${names[0]}" "$image"
say "loaded as $image, $(docker image inspect -f '{{.Size}}' "$image") bytes, user $(docker image inspect -f '{{.Config.User}}' "$image")"
same "$(docker image inspect -f '{{.Config.User}}' "$image")" 65532:65532 "user of the image"
same "$(docker image inspect -f '{{.Config.Healthcheck.Test}}' "$image")" "[CMD /usr/bin/tine status]" "health check of the image"
if docker run --rm --network none --entrypoint /bin/sh "$image" -c true 2>/dev/null; then fail "the image has a shell"; fi

say "alone, with the config it brings"
if out=$(docker run --rm --network none "$image" 2>&1); then fail "it served without a token"; fi
grep -q TINE_AUTH_TOKEN <<<"$out" || fail "it does not say what it wants: $out"
docker run -d --name "$project-bare" --network none --init -e TINE_AUTH_TOKEN=0123456789abcdef0123 "$image" >/dev/null
until_true "the image's own health check" docker exec "$project-bare" /usr/bin/tine servers
has Vienna docker exec "$project-bare" /usr/bin/tine call time__get_current_time timezone=Europe/Vienna
docker rm -fv "$project-bare" >/dev/null

say "up"
cp -r "$here/compose.yaml" "$here/etc" "$work/"
token=$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')
echo "$token" >"$work/token"
chmod 0444 "$work/token"
chmod 0711 "$work"
(cd "$tree" && CGO_ENABLED=0 go build -trimpath -o "$work/server" ./e2e/badserver)
printf '  kept: {command: server, scope: shared}\n' >>"$work/etc/tine.yaml"
cat >"$work/more.yaml" <<YAML
services:
  tine:
    volumes: ["$work/server:/usr/bin/server:ro"]
YAML
export TINE_IMAGE=$image TINE_PORT=18463
url=http://127.0.0.1:$TINE_PORT
compose up -d >/dev/null 2>&1 || { compose up -d; fail "up failed"; }
id=$(compose ps -q tine)
healthy() { [ "$(docker inspect -f '{{.State.Health.Status}}' "$id")" = healthy ]; }
until_true "healthy" healthy
http() { "${near[@]}" curl -sS --max-time 20 "$@"; }
status() { http -o /dev/null -w '%{http_code}' "$@"; }
# call NAME ARGUMENTS prints the text of a tool's result.
call() {
  http "$url/mcp" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
    -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"$1\",\"arguments\":$2}}"
}
in_it() { docker exec "$id" /usr/bin/tine "$@"; }

say "who comes in"
same "$(status "$url/healthz")" 200 "healthz"
list='{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
same "$(status "$url/mcp" -H 'Content-Type: application/json' -d "$list")" 401 "without a token"
same "$(status "$url/mcp" -H 'Content-Type: application/json' -H 'Authorization: Bearer wrong' -d "$list")" 401 "with a wrong token"
has Vienna call time__get_current_time '{"timezone":"Europe/Vienna"}'
call kept__remember '{"key":"a","value":"b"}' >/dev/null
has '"text":"b"' call kept__recall '{"key":"a"}'

say "what it may do"
same "$(docker inspect -f '{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}}' "$id")" "true [ALL] [no-new-privileges:true]" "restrictions"
report=$(in_it doctor) || fail "the doctor finds something broken: $report"
echo "$report"
grep -Eq '^ok +drivers +builtin, process, remote, url$' <<<"$report" || fail "the doctor names no drivers"
grep -q 'what is left: builtin, process, remote, url' <<<"$report" || fail "the doctor takes this for a machine that could run a sandbox"
if grep -q '^broken' <<<"$report"; then fail "the doctor finds something broken"; fi

say "a config that changes"
sed -i 's/^servers:/servers:\n  more: {builtin: time}/' "$work/etc/tine.yaml"
until_true "the new server" in_it servers show more

say "what is kept"
in_it servers disable everything >/dev/null
other=$(in_it token new ann --role viewer 2>/dev/null)
kept() {
  until_true "healthy after $1" healthy
  has '"state": "disabled"' in_it servers show everything --json
  has '"text":""' call kept__recall '{"key":"a"}' # a new process, which remembers nothing
  call kept__remember '{"key":"a","value":"b"}' >/dev/null
  same "$(status "$url/v1/servers" -H "Authorization: Bearer $other")" 200 "$1: a token that was made at run time"
  say "after $1: healthy, what was switched off is off, the token that was made comes in"
}
compose restart >/dev/null 2>&1
kept "a restart"
count() { docker inspect -f '{{.RestartCount}}' "$id"; }
pid=$(docker inspect -f '{{.State.Pid}}' "$id")
if [ "$(id -u)" = 0 ] && [ -d "/proc/$pid" ]; then
  kill -KILL "$pid"
  again() { [ "$(count)" = 1 ]; }
  until_true "a restart by the engine" again
  kept "kill -9"
fi

say "down"
began=$SECONDS
compose stop >/dev/null 2>&1
same "$(docker inspect -f '{{.State.ExitCode}}' "$id")" 0 "exit code of a stop"
say "it stopped in order, in $((SECONDS - began)) s"
compose down -v >/dev/null 2>&1
mine=(--quiet --filter "label=com.docker.compose.project=$project")
same "$(docker ps --all "${mine[@]}")$(docker volume ls "${mine[@]}")$(docker network ls "${mine[@]}")" "" "what is left after down -v"
