package tine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tine-mcp/tine"

// A layer says what one folder of the house may import of the module. The
// longest matching path decides. "x" in may is the package x alone, "x/..." is x
// and all below it. Below its own folder a package imports what it likes, as far
// as no other layer begins there.
type layer struct {
	path string // a folder and all below it; with /* each folder below it, by itself
	may  []string
	why  string
}

// leaves know nothing of each other: whoever needs two of them joins them.
var leaves = []string{
	"internal/config/...", "internal/secret", "internal/store/...", "internal/model/...",
	"internal/telemetry/...", "internal/identity/...", "internal/wire/...",
	"internal/layer", "internal/clone", "internal/workspace", "internal/publicnet",
}

var layers = []layer{
	{"api", nil,
		"any program may import api, so it brings nothing but the standard library"},
	{"client", []string{"api"},
		"client is public: what it needs, its users must be able to import too"},
	{"node", nil,
		"node is a module of its own, so that its users inherit nothing of Tine's"},
	{"internal/secret", nil,
		"what looks like a secret is the same wherever it stands"},
	{"internal/config", []string{"api", "internal/secret"}, leafWhy},
	{"internal/store", []string{"api"}, leafWhy},
	{"internal/store/*", []string{"api", "internal/store"},
		"a store knows the contract and no other store"},
	{"internal/model", []string{"api", "internal/wire"},
		leafWhy + "; but there is one reader of event streams, and wire has it"},
	{"internal/telemetry", []string{"api", "internal/secret"}, leafWhy},
	{"internal/identity", []string{"api"}, leafWhy},
	{"internal/wire", nil,
		"wire is MCP messages as bytes; it stays a leaf so that the fuzz targets reach all of it"},
	{"internal/layer", nil,
		"layers are files and what they fold to; they know of no server"},
	{"internal/clone", nil,
		"a copy of a tree of files knows nothing else"},
	{"internal/workspace", []string{"internal/layer", "internal/clone"},
		"a workspace is a tree in layers or a folder that is cloned; who sees it does not matter"},
	{"internal/publicnet", nil,
		"which addresses are public is the same for whoever asks"},
	{"internal/confine", nil,
		"what the kernel refuses a process is the same for whoever asks"},
	{"internal/torture", nil,
		"how hard tests try is the same everywhere"},
	{"internal/testkit", nil,
		"every test may use it, so it lies below all that is tested"},
	{"internal/driver", join(leaves, "api"),
		"the driver contract lies below whoever runs instances"},
	{"internal/driver/*", join(leaves, "api", "internal/driver", "internal/driver/drivertest",
		"internal/driver/dirs", "internal/driver/egress", "internal/driver/family", "internal/driver/fifo", "internal/driver/flight", "internal/driver/folder", "internal/driver/gate", "internal/driver/image", "internal/driver/life", "internal/driver/lines", "internal/driver/packages", "internal/driver/parcel", "internal/driver/procid", "internal/driver/routes", "internal/driver/stdio"),
		"a driver knows the contract and no other driver"},
	{"internal/driver/kinds", []string{"internal/config/...", "internal/driver/docker", "internal/driver/remote", "internal/driver/sandbox", "internal/native/rlm/body"},
		"a config has the keys of all drivers that have some"},
	{"internal/upstream", join(leaves, "api", "internal/driver"),
		"upstream relays to any driver's link and knows no session"},
	{"internal/session/catalog", join(leaves, "api", "internal/driver", "internal/upstream/..."),
		"what servers there are does not depend on who has sessions of them"},
	{"internal/session", join(leaves, "api", "internal/driver", "internal/upstream/...", "internal/session/catalog"),
		"a session works the same whoever asks for it, so it knows neither agents nor the edge"},
	{"internal/control", join(leaves, "api", "internal/driver", "internal/upstream/...", "internal/session/...", "internal/control/access"),
		"what is done to sessions is the same for every way in, so it knows none of them"},
	{"internal/control/access", []string{"api", "internal/config/...", "internal/identity/..."},
		"who may do what is decided from the principal alone; nothing is looked up for it"},
	{"internal/agent", join(leaves, "api", "internal/driver", "internal/upstream/...", "internal/session/...", "internal/control/...", "internal/agent/blueprint", "internal/agent/executor", "internal/agent/hook", "internal/agent/runner"),
		"agents run on sessions; the edge is above them"},
	{"internal/agent/blueprint", []string{"api", "internal/config/...", "internal/secret"},
		"a blueprint is a document; what becomes of it does not matter to it"},
	{"internal/agent/executor", []string{"api", "internal/secret", "internal/wire"},
		"an executor knows the job and its program; it starts nothing and sees no session"},
	{"internal/agent/executor/*", []string{"api", "internal/agent/executor", "internal/agent/executor/executortest", "internal/model/modeltest", "internal/wire"},
		"an executor knows the contract and no other executor"},
	{"internal/agent/hook", []string{"api", "internal/agent/blueprint", "internal/driver/family", "internal/driver/folder", "internal/driver/procid"},
		"a hook is a program that is run; what its answer means for the run does not matter to it"},
	{"internal/agent/runner", join(leaves, "api", "internal/agent/blueprint", "internal/agent/executor", "internal/driver/procid", "internal/driver/fifo", "internal/driver/folder", "internal/driver/family", "internal/driver/lines"),
		"a runner may be on another machine than the coordinator and the sessions, which it knows as Queue and Worlds"},
	{"internal/web", nil,
		"the dashboard is files; the edge serves them"},
	{"internal/gateway", join(leaves, "api", "internal/driver", "internal/upstream/...", "internal/session/...", "internal/control/...", "internal/agent/...", "internal/web/..."),
		"the edge joins what is below; only cmd names a concrete driver, executor or native server"},
	{"internal/native/*", join(leaves, "api", "internal/driver", "internal/native/settings", "internal/native/nativetest"),
		"a native server declares the few methods it needs and cmd passes them in"},
	{"cmd/tine", []string{"..."},
		"cmd is the wiring"},
	{"cmd/tine-sandbox", []string{"internal/driver/sandbox/control"},
		"the helper with gVisor in it is asked over a socket, and knows nothing of the gateway"},
	{"deploy", []string{"internal/telemetry"},
		"what is deployed is held against the metrics that there are"},
	{"e2e", []string{"api", "client", "internal/identity/issuertest", "internal/model/modeltest"},
		"end-to-end tests stand outside: they see what a user sees, and play the issuer and the language model"},
	{"bench", []string{"api", "client", "internal/wire/...", "internal/identity/issuertest"},
		"the benchmark stands outside: it measures what a user gets"},
}

const leafWhy = "the leaves know nothing of each other or of what is above; whoever needs two of them joins them"

func join(list []string, more ...string) []string { return slices.Concat(list, more) }

// goPackage is what go list -json says of a package, as far as it is needed.
type goPackage struct {
	ImportPath   string
	Name         string
	Doc          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// modules are the folders of the modules whose packages are ours: go list sees one
// module at a time.
var modules = []string{".", "node"}

// listPackages asks for every platform, since a file of another platform may
// break the layers as well.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	byPath := map[string]goPackage{}
	for i := range 3 * len(modules) {
		goos, dir := []string{"linux", "darwin", "windows"}[i%3], modules[i/3]
		cmd := exec.Command("go", "list", "-C", dir, "-e", "-json=ImportPath,Name,Doc,GoFiles,Imports,TestImports,XTestImports", "./...")
		cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list in %s for %s: %v", dir, goos, err)
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var p goPackage
			if err := dec.Decode(&p); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("go list for %s: %v", goos, err)
			}
			old := byPath[p.ImportPath]
			p.GoFiles = union(old.GoFiles, p.GoFiles)
			p.Imports = union(old.Imports, p.Imports)
			p.TestImports = union(old.TestImports, p.TestImports)
			p.XTestImports = union(old.XTestImports, p.XTestImports)
			if p.Doc == "" {
				p.Doc = old.Doc
			}
			byPath[p.ImportPath] = p
		}
	}
	var all []goPackage
	for _, p := range byPath {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b goPackage) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return all
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// unit is the folder of a layer that pkg belongs to: the layer's path, or with
// /* the one folder below it.
func (l layer) unit(pkg string) (string, bool) {
	parent, each := strings.CutSuffix(l.path, "/*")
	rest, below := strings.CutPrefix(pkg, parent+"/")
	switch {
	case !each && (pkg == l.path || below):
		return l.path, true
	case each && below:
		first, _, _ := strings.Cut(rest, "/")
		return parent + "/" + first, true
	}
	return "", false
}

func layerOf(pkg string) (l layer, unit string, ok bool) {
	for _, c := range layers {
		if u, in := c.unit(pkg); in && len(u) >= len(unit) {
			l, unit, ok = c, u, true
		}
	}
	return l, unit, ok
}

func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if dir, all := strings.CutSuffix(pattern, "/..."); all {
		return pkg == dir || strings.HasPrefix(pkg, dir+"/")
	}
	return pattern == pkg
}

// concrete reports whether pkg is one driver, executor, store or native server,
// which tests may use although only cmd may name them.
func concrete(pkg string) bool {
	for _, dir := range []string{"internal/driver/", "internal/native/", "internal/store/", "internal/agent/executor/"} {
		if strings.HasPrefix(pkg, dir) {
			return true
		}
	}
	return false
}

// forTests reports whether pkg is for every test and for nothing else.
func forTests(pkg string) bool { return pkg == "internal/torture" || pkg == "internal/testkit" }

// brokenLayers lists the imports that run the wrong way.
func brokenLayers(pkgs []goPackage) []string {
	var broken []string
	for _, p := range pkgs {
		from, in := strings.CutPrefix(p.ImportPath, module+"/")
		if !in {
			continue // the root holds only tests of the house
		}
		l, unit, ok := layerOf(from)
		if !ok {
			broken = append(broken, fmt.Sprintf("%s: no layer is named for this folder; add it to layers_test.go", from))
			continue
		}
		check := func(imports []string, test bool) {
			for _, imp := range imports {
				to, ours := strings.CutPrefix(imp, module+"/")
				if !ours {
					if from == "api" && strings.Contains(strings.Split(imp, "/")[0], ".") && imp != module {
						broken = append(broken, fmt.Sprintf("%s imports %s: %s", from, imp, l.why))
					}
					continue
				}
				_, toUnit, _ := layerOf(to)
				if toUnit == unit || test && concrete(to) || forTests(to) && (test || strings.HasSuffix(from, "test")) ||
					!forTests(to) && slices.ContainsFunc(l.may, func(m string) bool { return matches(m, to) }) {
					continue
				}
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", from, to, l.why))
			}
		}
		check(p.Imports, false)
		check(p.TestImports, true)
		check(p.XTestImports, true)
	}
	return broken
}

func TestLayers(t *testing.T) {
	for _, b := range brokenLayers(listPackages(t)) {
		t.Error(b)
	}
}

// TestLayersCanFail shows that each kind of wrong import is seen, and that the
// right ones pass.
func TestLayersCanFail(t *testing.T) {
	pkg := func(from string, imports ...string) goPackage {
		p := goPackage{ImportPath: module + "/" + from}
		for _, i := range imports {
			if strings.HasPrefix(i, "!") {
				p.Imports = append(p.Imports, i[1:])
			} else {
				p.Imports = append(p.Imports, module+"/"+i)
			}
		}
		return p
	}
	for _, tt := range []struct {
		pkg  goPackage
		want int
	}{
		{pkg("api", "!time"), 0},
		{pkg("api", "!github.com/spf13/cobra"), 1},
		{pkg("api", "internal/config"), 1},
		{pkg("client", "api"), 0},
		{pkg("client", "internal/wire"), 1},
		{pkg("node", "internal/wire"), 1},
		{pkg("node", "api"), 1},
		{pkg("internal/config", "internal/store"), 1},
		{pkg("internal/wire", "api"), 1},
		{pkg("internal/store/sqlite", "internal/store"), 0},
		{pkg("internal/store/sqlite", "internal/store/postgres"), 1},
		{pkg("internal/driver", "internal/config"), 0},
		{pkg("internal/driver", "internal/driver/process"), 1},
		{pkg("internal/driver/process", "internal/driver", "internal/driver/process/fifo"), 0},
		{pkg("internal/driver/process", "internal/driver/builtin"), 1},
		{pkg("internal/upstream", "internal/driver", "internal/wire"), 0},
		{pkg("internal/upstream", "internal/session"), 1},
		{pkg("internal/upstream", "internal/driver/process"), 1},
		{pkg("internal/session", "internal/gateway"), 1},
		{pkg("internal/session", "internal/session/catalog"), 0},
		{pkg("internal/session/catalog", "internal/session"), 1},
		{pkg("internal/session", "internal/control/access"), 1},
		{pkg("internal/control/access", "internal/identity"), 0},
		{pkg("internal/control/access", "internal/session"), 1},
		{pkg("internal/gateway", "internal/control/access"), 0},
		{pkg("internal/gateway", "internal/native/fetch"), 1},
		{pkg("internal/native/fetch", "internal/publicnet", "internal/native/fetch/page"), 0},
		{pkg("internal/native/fetch", "internal/native/time"), 1},
		{pkg("internal/native/fetch", "internal/session"), 1},
		{pkg("cmd/tine", "internal/native/fetch", "internal/driver/process"), 0},
		{pkg("e2e", "internal/gateway"), 1},
		{pkg("internal/surprise"), 1},
		{goPackage{ImportPath: module + "/internal/session", TestImports: []string{module + "/internal/driver/process"}}, 0},
		{goPackage{ImportPath: module + "/internal/session", XTestImports: []string{module + "/internal/gateway"}}, 1},
		{goPackage{ImportPath: module + "/internal/wire", TestImports: []string{module + "/internal/testkit"}}, 0},
		{pkg("internal/driver/drivertest", "internal/testkit"), 0},
		{pkg("internal/testkit", "internal/wire"), 1},
		{pkg("internal/session", "internal/testkit"), 1},
		{pkg("cmd/tine", "internal/testkit"), 1},
	} {
		if got := brokenLayers([]goPackage{tt.pkg}); len(got) != tt.want {
			t.Errorf("%s importing %v: %d broken %q, want %d", tt.pkg.ImportPath, tt.pkg.Imports, len(got), got, tt.want)
		}
	}
}
