#!/bin/bash
# run.sh NAME tests the adapter for one library, in .cache/trainers/NAME. The environment is made anew when what
# is pinned changes.
set -euo pipefail
name=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
env=$root/.cache/trainers/$name
python=$(cat "$here/$name/python" 2>/dev/null || echo python3)

pinned() { cat "$here/$name"/requirements.txt "$here"/../pyproject.toml "$here/$name"/without_*.py 2>/dev/null || true; }
if ! pinned | cmp -s - "$env/pinned"; then
  if ! "$python" -c '' 2>/dev/null; then
    echo "trainers: $name needs $python, which is not installed; it is not tested" >&2
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
