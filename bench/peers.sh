#!/usr/bin/env bash
# Fetches what the benchmark compares the kernel of rlm with, jupyter_client and
# ipykernel at the versions pinned in e2e/tools/jupyter.txt, into .cache/tools/jupyter.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../e2e/setup-lib.sh"

python3 -c 'import ensurepip' 2>/dev/null || packages python3-venv

jupyter() {
  rm -rf "$dest/jupyter"
  python3 -m venv "$dest/jupyter"
  # Other checkouts of this user take the wheels that one of them fetched.
  local pip=("$dest/jupyter/bin/pip" --disable-pip-version-check) from=(--no-deps --find-links "$kept/wheels" -r "$pins/jupyter.txt")
  mkdir -p "$kept/wheels"
  "${pip[@]}" install --no-index "${from[@]}" || {
    "${pip[@]}" download -d "$kept/wheels" "${from[@]}"
    "${pip[@]}" install --no-index "${from[@]}"
  }
  "${pip[@]}" check
}

once jupyter "$(sum "$pins/jupyter.txt") $(python3 --version)" jupyter
