#!/bin/bash
# run.sh NAME tests the adapter for one library, in .cache/trainers/NAME. The environment is made anew when what
# is pinned changes.
set -euo pipefail
name=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
env=$root/.cache/trainers/$name
oldest=$(cat "$here/$name/python" 2>/dev/null || echo 3.11) # the oldest Python that the library runs on

# The first Python that is new enough: python3, those with a version in their name, those of pyenv.
find_python() {
  for p in python3 python3.{12..15} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
    if "$p" -c "import sys; sys.exit(sys.version_info < (${oldest/./, }))" 2>/dev/null; then echo "$p"; return; fi
  done
  return 1
}

pinned() { cat "$here/$name"/requirements.txt "$here"/../pyproject.toml "$here/$name"/without_*.py 2>/dev/null || true; }
if ! pinned | cmp -s - "$env/pinned"; then
  if ! python=$(find_python); then
    echo "trainers: $name needs Python $oldest, which is not installed; it is not tested" >&2
    [ -z "${CI:-}" ]; exit
  fi
  rm -rf "$env"
  "$python" -m venv "$env"
  pip=("$env/bin/pip" install -q --disable-pip-version-check --no-cache-dir --no-deps)
  "${pip[@]}" -r "$here/$name/requirements.txt"
  "${pip[@]}" --no-build-isolation -e "$here/.."
  for fix in "$here/$name"/without_*.py; do [ ! -e "$fix" ] || "$env/bin/python" "$fix"; done
  pinned >"$env/pinned"
fi
cd "$here"
export TINE_BIN=${TINE_BIN:-$root/bin/tine} UV_CACHE_DIR=$root/.cache/trainers/uv
exec "$env/bin/pytest" "$name" ${PYTESTFLAGS:-}
