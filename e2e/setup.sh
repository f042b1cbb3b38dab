#!/usr/bin/env bash
# Fills .cache/tools with the real servers, clients, suites and images that the
# tests run, at the versions pinned in e2e/tools and tools/go.mod, makes the
# environments of the Python package, and installs the container engines, which
# engine.sh starts. Running it again is quick: each part is done once per content of
# what it is made of.
#
#   setup.sh        all of it
#   setup.sh fetch  all but what is compiled of Go
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup-lib.sh"

missing=()
on_path gcc || missing+=(gcc libc6-dev) # the race detector links with it
on_path git || missing+=(git)           # mcp-server-git calls it
on_path curl || missing+=(curl)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
[ ${#missing[@]} = 0 ] || packages "${missing[@]}"

for tool in go node npm python3; do
  command -v "$tool" >/dev/null || { echo "setup: $tool not found on PATH; install Go 1.26, Node.js 20 and Python 3.11 or newer" >&2; exit 1; }
done

# The engines, where there are none: Debian's, with what they only recommend and
# can't do without.
engines=()
if ! "$root/e2e/engine.sh" answers docker && ! on_path dockerd; then
  engines+=(docker.io containerd runc iptables)
  # With AppArmor in the kernel, containers want a profile.
  grep -qs Y /sys/module/apparmor/parameters/enabled && engines+=(apparmor)
fi
if ! "$root/e2e/engine.sh" answers podman && ! on_path podman; then engines+=(podman runc netavark aardvark-dns iptables); fi
if ! on_path debootstrap; then engines+=(debootstrap debian-archive-keyring gpgv); fi
# Without Debian and root there is nothing to install; engine.sh says what is missing.
if [ ${#engines[@]} != 0 ] && debian; then
  echo "setup: engines"
  packages "${engines[@]}" || lacking "can't install ${engines[*]}"
fi

npm_packages() {
  cp "$pins/package.json" "$pins/package-lock.json" "$pins/.npmrc" "$dest/"
  # No package here needs its install script, so none is run.
  npm --prefix "$dest" ci --ignore-scripts
}

python_packages() {
  rm -rf "$dest/venv"
  python3 -m venv "$dest/venv"
  # Other checkouts of this user take the wheels that one of them fetched.
  local pip=("$dest/venv/bin/pip" --disable-pip-version-check) from=(--no-deps --find-links "$kept/wheels" -r "$pins/requirements.txt")
  mkdir -p "$kept/wheels"
  "${pip[@]}" install --no-index "${from[@]}" || {
    find "$kept/wheels" -mtime +30 -delete
    "${pip[@]}" download -d "$kept/wheels" "${from[@]}"
    "${pip[@]}" install --no-index "${from[@]}"
  }
  "$dest/venv/bin/pip" check
}

# rewardkit is RewardKit's sources as PyPI has them, with its own tests, and a venv
# of its own for them: it wants an older SDK than ours.
rewardkit() {
  local to=$dest/rewardkit version
  rm -rf "$to"
  mkdir -p "$to" "$kept/wheels" "$kept/sdists"
  python3 -m venv "$to/venv"
  local pip=("$to/venv/bin/pip" --disable-pip-version-check) from=(--no-deps --find-links "$kept/wheels" -r "$pins/rewardkit.txt")
  "${pip[@]}" install --no-index "${from[@]}" || {
    "${pip[@]}" wheel -w "$kept/wheels" "${from[@]}" # not all of it has wheels on PyPI
    "${pip[@]}" install --no-index "${from[@]}"
  }
  "${pip[@]}" check
  for version in 0.3.6 0.4.1; do
    [ -f "$kept/sdists/reward_kit-$version.tar.gz" ] ||
      "${pip[@]}" download --no-deps --no-binary reward-kit -d "$kept/sdists" "reward-kit==$version"
  done
  (cd "$kept/sdists" && sha256sum --check "$pins/rewardkit.sha256") || { rm -f "$kept"/sdists/reward_kit-*; return 1; }
  for version in 0.3.6 0.4.1; do
    tar -xzf "$kept/sdists/reward_kit-$version.tar.gz" -C "$to"
  done
}

# openenv is OpenEnv at its current version in a venv of its own, and the last one of its
# earlier name, which needs no more than that has.
openenv() {
  local to=$dest/openenv
  rm -rf "$to"
  mkdir -p "$kept/wheels"
  python3 -m venv "$to/venv"
  local pip=("$to/venv/bin/pip" --disable-pip-version-check) from=(--no-deps --find-links "$kept/wheels") old=openenv-core==0.3.0
  "${pip[@]}" install --no-index "${from[@]}" -r "$pins/openenv.txt" || {
    "${pip[@]}" download -d "$kept/wheels" "${from[@]}" -r "$pins/openenv.txt"
    "${pip[@]}" install --no-index "${from[@]}" -r "$pins/openenv.txt"
  }
  "${pip[@]}" check
  [ -f "$kept/wheels/openenv_core-0.3.0-py3-none-any.whl" ] || "${pip[@]}" download --no-deps -d "$kept/wheels" "$old"
  (cd "$kept/wheels" && sha256sum --check "$pins/openenv.sha256") || { rm -f "$kept"/wheels/openenv*; return 1; }
  "${pip[@]}" install --no-index "${from[@]}" --target "$to/core-0.3.0" "$old"
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
  cd "$work"
  # A machine that never asked for packages has no list of them.
  apt-get download prometheus || { apt-get update && apt-get download prometheus; }
  dpkg -x prometheus_*.deb .
  install usr/bin/prometheus usr/bin/promtool "$dest/prometheus/"
)

# Parts that don't wait for each other run at once.
parts=()
once npm "$(sum "$pins/package.json" "$pins/package-lock.json") $(node --version)" npm_packages &
parts+=($!)
once python "$(sum "$pins/requirements.txt") $(python3 --version)" python_packages &
parts+=($!)
once rewardkit "$(sum "$pins/rewardkit.txt" "$pins/rewardkit.sha256") $(python3 --version)" rewardkit &
parts+=($!)
make -C "$root" --no-print-directory pyenvs &
parts+=($!)
once openenv "$(sum "$pins/openenv.txt" "$pins/openenv.sha256") $(python3 --version)" openenv &
parts+=($!)
if on_path apt-get dpkg || on_path prometheus promtool; then
  once prometheus "$(. /etc/os-release 2>/dev/null && echo "$ID $VERSION_ID") $(uname -m)" prometheus_programs &
  parts+=($!)
else
  echo "setup: no Prometheus, as it is taken from Debian's packages or from PATH; its tests are skipped" >&2
fi
bootstrap=''
if debian && on_path debootstrap; then
  bootstrap=yes
  "$root/e2e/images.sh" base &
  parts+=($!)
else
  lacking "no tine-test/servers image, as debootstrap makes it, as root on Debian"
fi

failed=0
for part in "${parts[@]}"; do
  wait "$part" || failed=1
done
[ "$failed" = 0 ] || exit 1
[ -z "$bootstrap" ] || "$root/e2e/images.sh" servers
[ "${1:-}" = fetch ] && exit
once go "$(sum "$root/tools/go.sum") $(go version)" go_tools
"$root/e2e/images.sh" static
