#!/usr/bin/env bash
# Fills .cache/tools with the real servers, clients and suites that the
# end-to-end tests run, at the versions pinned in e2e/tools and tools/go.mod.
# Running it again is quick: each part is done once per content of its pin file.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pins=$root/e2e/tools
dest=${TINE_TEST_TOOLS:-$root/.cache/tools}
mkdir -p "$dest/bin" "$dest/log"

# packages installs Debian packages, where that is possible, and otherwise says
# what the reader has to install.
packages() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } \
      >"$dest/log/apt.log" 2>&1 || { cat "$dest/log/apt.log" >&2; return 1; }
  else
    echo "setup: please install: $*" >&2
    return 1
  fi
}

missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev) # the race detector links with it
command -v git >/dev/null || missing+=(git)           # mcp-server-git calls it
command -v curl >/dev/null || missing+=(curl)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
[ ${#missing[@]} = 0 ] || packages "${missing[@]}"

for tool in go node npm python3; do
  command -v "$tool" >/dev/null || { echo "setup: $tool not found on PATH; install Go 1.26, Node.js 20 and Python 3.11 or newer" >&2; exit 1; }
done

# once NAME KEY COMMAND... runs the command unless it was done for this key.
once() {
  local name=$1 key=$2
  shift 2
  [ -f "$dest/$name.done" ] && [ "$(cat "$dest/$name.done")" = "$key" ] && return 0
  rm -f "$dest/$name.done"
  echo "setup: $name"
  if ! "$@" >"$dest/log/$name.log" 2>&1; then
    echo "setup: $name failed:" >&2
    tail -n 40 "$dest/log/$name.log" >&2
    return 1
  fi
  echo "$key" >"$dest/$name.done"
}

sum() { cat "$@" | sha256sum | cut -d' ' -f1; }

npm_packages() {
  cp "$pins/package.json" "$pins/package-lock.json" "$pins/.npmrc" "$dest/"
  # No package here needs its install script, so none is run.
  npm --prefix "$dest" ci --ignore-scripts
}

python_packages() {
  rm -rf "$dest/venv"
  python3 -m venv "$dest/venv"
  "$dest/venv/bin/pip" install --disable-pip-version-check --no-deps -r "$pins/requirements.txt"
  "$dest/venv/bin/pip" check
}

go_tools() {
  cd "$root/tools"
  go build -o "$dest/bin/everything-server" github.com/modelcontextprotocol/go-sdk/conformance/everything-server
}

# prometheus_programs takes the programs out of Debian's package. Installing it
# would start a service.
prometheus_programs() (
  mkdir -p "$dest/prometheus"
  if on_path prometheus promtool; then
    ln -sf "$(command -v prometheus)" "$(command -v promtool)" "$dest/prometheus/"
    return
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  # A machine that never asked for packages has no list of them.
  cd "$work" && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; } &&
    dpkg -x prometheus_*.deb . &&
    install usr/bin/prometheus usr/bin/promtool "$dest/prometheus/"
)

on_path() {
  for program; do
    command -v "$program" >/dev/null || return 1
  done
}

once npm "$(sum "$pins/package.json" "$pins/package-lock.json") $(node --version)" npm_packages &
npm=$!
once python "$(sum "$pins/requirements.txt") $(python3 --version)" python_packages &
python=$!
failed=0
if on_path apt-get dpkg || on_path prometheus promtool; then
  once prometheus "$(. /etc/os-release 2>/dev/null && echo "$ID $VERSION_ID") $(uname -m)" prometheus_programs || failed=1
else
  echo "setup: no Prometheus, as it is taken from Debian's packages or from PATH; its tests are skipped" >&2
fi
once go "$(sum "$root/tools/go.sum") $(go version)" go_tools || failed=1
wait "$npm" || failed=1
wait "$python" || failed=1
exit "$failed"
