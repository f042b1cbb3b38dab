#!/usr/bin/env bash
# Makes the container images of the tests as archives in .cache/tools/images, with
# no registry: each part once per content of what it is made of.
#
#   images.sh static    tine-test/static: Go servers of this tree on nothing at all
#   images.sh base      the Debian of the next one, by debootstrap; needs root
#   images.sh servers   tine-test/servers: reference servers of npm and PyPI; needs
#                       base and what setup.sh fetches
#
# Every image has two names, tine-test/NAME:latest and localhost/tine-test/NAME:latest,
# as Docker and Podman differ in what they make of a short one. The label
# tine.test holds the content's key, so that engine.sh knows a stale one.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup-lib.sh"

images=$dest/images
arch=$(uname -m)
case $arch in x86_64) goarch=amd64 ;; aarch64 | arm64) goarch=arm64 ;; *) goarch=$arch ;; esac

work=$(mktemp -d "$images/work.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM

# layer DIR FILE packs a directory the same way every time.
layer() { tar -C "$1" --sort=name --numeric-owner --owner=0 --group=0 --mtime="${3:-@0}" -cf "$2" .; }

# archive NAME KEY LAYER... makes an archive that docker load and podman load take.
archive() {
  local name=$1 key=$2 ids='' files='' history='' n=0 dir=$work/archive
  shift 2
  rm -rf "$dir" && mkdir "$dir"
  for l; do
    n=$((n + 1))
    ln "$l" "$dir/$n.tar" 2>/dev/null || cp "$l" "$dir/$n.tar"
    ids+="${ids:+,}\"sha256:$(sum "$l")\""
    files+="${files:+,}\"$n.tar\""
    # Podman commits no container of an image whose history misses a layer.
    history+="${history:+,}{\"created\":\"2000-01-01T00:00:00Z\",\"created_by\":\"images.sh\"}"
  done
  cat >"$dir/config.json" <<JSON
{"architecture":"$goarch","os":"linux","created":"2000-01-01T00:00:00Z",
 "config":{"Env":["PATH=/usr/local/bin:/usr/bin:/bin","HOME=/tmp"],"WorkingDir":"/","Labels":{"tine.test":"$key"}},
 "rootfs":{"type":"layers","diff_ids":[$ids]},
 "history":[$history]}
JSON
  echo "[{\"Config\":\"config.json\",\"RepoTags\":[\"tine-test/$name:latest\",\"localhost/tine-test/$name:latest\"],\"Layers\":[$files]}]" >"$dir/manifest.json"
  # Renamed into place, so that half an archive is never loaded.
  tar -C "$dir" -cf "$work/$name.tar" manifest.json config.json $(cd "$dir" && ls -- *.tar)
  mv "$work/$name.tar" "$images/$name.tar"
  echo "$key" >"$images/$name.key"
}

# folders that a server may write to, whoever it runs as
open_folders() { install -d -m 1777 "$1/tmp" "$1/data" "$1/projects"; }

static_image() {
  archive static "$1" "$work/static.layer"
}

# The servers are compiled every time, which Go knows how to make short, and what
# they are compiled to is the key.
make_static() {
  local rootfs=$work/static key
  mkdir -p "$rootfs/bin" "$rootfs/etc"
  open_folders "$rootfs"
  (
    cd "$root"
    export CGO_ENABLED=0 GOOS=linux GOARCH=$goarch
    for server in stateserver badserver faultserver tellserver; do
      go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$rootfs/bin/$server" "./e2e/$server"
    done
    go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$rootfs/bin/suiteserver" ./internal/driver/drivertest/testdata/server
    go build -C tools -trimpath -buildvcs=false -ldflags='-s -w' -o "$rootfs/bin/everything-server" github.com/modelcontextprotocol/go-sdk/conformance/everything-server
  )
  echo 'nobody:x:65534:65534:nobody:/tmp:/bin/false' >"$rootfs/etc/passwd"
  layer "$rootfs" "$work/static.layer"
  key=$(sum "$work/static.layer" "$root/e2e/images.sh")
  once image-static "$key" static_image "$key"
}

codename() { (. /etc/os-release && echo "$VERSION_CODENAME"); }

# mirror is where this machine's own packages come from.
mirror() { apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "Release: $(codename)" | head -n 1; }

# Other checkouts of this user take the Debian that one of them made.
base_layer() {
  local rootfs=$work/base proxy='' key
  key=$(sum <<<"$1")
  if tar -C "$work" -xf "$kept/base-$key.tar" 2>/dev/null; then
    mv "$work/base.tar" "$work/base.python" "$images/"
    return
  fi
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  [ -z "$proxy" ] || export http_proxy=$proxy
  # What debootstrap mounts goes with the namespace, also when it fails.
  unshare --mount debootstrap --variant=minbase --include=python3,libstdc++6 "$(codename)" "$rootfs" "$(mirror)"
  rm -rf "$rootfs"/var/cache/* "$rootfs"/var/lib/apt/lists/* "$rootfs"/var/log/* "$rootfs"/usr/share/{doc,man,locale,info}/* "$rootfs"/dev/* "$rootfs"/run/*
  open_folders "$rootfs"
  # Compiled files name the times of their sources, so these stay as they are.
  tar -C "$rootfs" --sort=name --numeric-owner -cf "$work/base.tar" .
  chroot "$rootfs" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' >"$work/base.python"
  mkdir -p "$kept"
  find "$kept" -maxdepth 1 -name "base-*" -mtime +30 -delete
  tar -C "$work" -cf "$work/kept.tar" base.tar base.python
  mv "$work/kept.tar" "$kept/base-$key.$$" && mv "$kept/base-$key.$$" "$kept/base-$key.tar"
  mv "$work/base.tar" "$work/base.python" "$images/"
}

make_base() {
  local key
  key="$(sum <(declare -f base_layer)) $(codename) $arch"
  once image-base "$key" base_layer "$key"
}

# npm_closure names the packages that the servers need, from the lock that npm
# left beside them.
npm_closure() {
  python3 - "$dest/node_modules/.package-lock.json" "$@" <<'PY'
import json, sys
packages = json.load(open(sys.argv[1]))["packages"]

def find(start, name):
    while True:
        key = (start + "/" if start else "") + "node_modules/" + name
        if key in packages or not start:
            return key if key in packages else None
        start = start[: start.rfind("node_modules/")].rstrip("/")

seen, todo = set(), ["node_modules/" + name for name in sys.argv[2:]]
while todo:
    key = todo.pop()
    if key in seen:
        continue
    seen.add(key)
    entry = packages[key]
    optional = {**entry.get("optionalDependencies", {}), **entry.get("peerDependencies", {})}
    for name in {**entry.get("dependencies", {}), **optional}:
        found = find(key, name)
        if found:
            todo.append(found)
        elif name not in optional:
            sys.exit(f"{key} needs {name}, which is not installed")
# A package inside another comes with it.
print("\n".join(sorted(k for k in seen if k.count("node_modules/") == 1)))
PY
}

servers_image() {
  local rootfs=$work/servers site version
  version=$(cat "$images/base.python")
  site=$dest/venv/lib/python$version/site-packages
  [ -d "$site" ] || { echo "the image's Python is $version and that of $dest/venv is another; run the set-up with Python $version"; return 1; }
  mkdir -p "$rootfs/usr/local/bin" "$rootfs/usr/local/lib/node" "$rootfs/usr/local/lib/python$version/dist-packages"
  cp -L "$dest/node_modules/.bin/node" "$rootfs/usr/local/bin/node"
  npm_closure @modelcontextprotocol/server-{filesystem,memory,everything} >"$work/npm"
  (cd "$dest" && tar -cf - -T "$work/npm") | tar -C "$rootfs/usr/local/lib/node" -xf -
  for server in filesystem memory everything; do
    printf '#!/bin/sh\nexec node /usr/local/lib/node/node_modules/@modelcontextprotocol/server-%s/dist/index.js "$@"\n' "$server" >"$rootfs/usr/local/bin/mcp-server-$server"
  done
  tar -C "$site" --exclude='./pip*' --exclude='./setuptools*' --exclude='./_distutils_hack' --exclude='./distutils-precedence.pth' -cf - . |
    tar -C "$rootfs/usr/local/lib/python$version/dist-packages" -xf -
  for server in time fetch motherduck; do
    printf '#!/usr/bin/python3\nimport sys\nfrom mcp_server_%s import main\nsys.exit(main())\n' "$server" >"$rootfs/usr/local/bin/mcp-server-$server"
  done
  chmod 755 "$rootfs"/usr/local/bin/*
  tar -C "$rootfs" --sort=name --numeric-owner --owner=0 --group=0 -cf "$work/servers.layer" .
  archive servers "$1" "$images/base.tar" "$work/servers.layer"
}

make_servers() {
  local key
  key=$(sum "$pins/package-lock.json" "$pins/requirements.txt" "$root/e2e/images.sh" "$dest/image-base.done")
  once image-servers "$key" servers_image "$key"
}

for part in "${@:-static}"; do
  case $part in
  static | base | servers) "make_$part" ;;
  *) echo "images: what is $part? usage: images.sh static|base|servers ..." >&2; exit 2 ;;
  esac
done
