# What the scripts of the test set-up share; sourced by them.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pins=$root/e2e/tools
dest=${TINE_TEST_TOOLS:-$root/.cache/tools}
kept=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/tine-tests # what several checkouts use
mkdir -p "$dest/bin" "$dest/log" "$dest/images" "$dest/engine"

on_path() {
  for program; do
    command -v "$program" >/dev/null || return 1
  done
}

# debian reports whether packages can be installed here.
debian() { [ "$(id -u)" = 0 ] && on_path apt-get dpkg; }

# packages installs Debian packages, where that is possible, and otherwise says
# what the reader has to install. Services that they bring may fail to start.
packages() {
  if debian; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } \
      >"$dest/log/apt.log" 2>&1 || { cat "$dest/log/apt.log" >&2; return 1; }
  else
    echo "setup: please install: $*" >&2
    return 1
  fi
}

# lacking says that tests will be skipped for want of something, which is a
# failure in CI.
lacking() {
  if [ -n "${CI:-}" ]; then
    echo "setup: $*" >&2
    return 1
  fi
  echo "setup: $*; tests that need it are skipped" >&2
}

# once NAME KEY COMMAND... runs the command unless it was done for this key. Call
# it alone or in the background: in a condition bash heeds no "set -e", and a
# command that failed halfway would count as done.
once() {
  local name=$1 key=$2 began=$SECONDS
  shift 2
  [ -f "$dest/$name.done" ] && [ "$(cat "$dest/$name.done")" = "$key" ] && return 0
  rm -f "$dest/$name.done"
  echo "setup: $name"
  "$@" >"$dest/log/$name.log" 2>&1 &
  if ! wait $!; then
    echo "setup: $name failed:" >&2
    tail -n 40 "$dest/log/$name.log" >&2
    return 1
  fi
  echo "$key" >"$dest/$name.done"
  echo "setup: $name took $((SECONDS - began)) s"
}

sum() { cat "$@" | sha256sum | cut -d' ' -f1; }
