package platforms

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

func TestTypes(t *testing.T) {
	for _, module := range []string{"../..", "../../node"} {
		check(t, module, "darwin", "arm64")
	}
}

// check has the types of a module's packages and of their tests checked. Of what they
// import, only what stands outside of functions is.
func check(t *testing.T, module, system, arch string) {
	list := exec.Command("go", "list", "./...")
	list.Dir = module
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for pkg := range strings.Lines(string(out)) {
		if pkg = strings.TrimSpace(pkg); !strings.HasSuffix(pkg, "/cmd/tine-sandbox") {
			ours = append(ours, pkg)
		}
	}
	loaded, err := packages.Load(&packages.Config{
		Dir: module, Tests: true,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes,
	}, ours...)
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) < len(ours) {
		t.Fatalf("%d packages were loaded of %d", len(loaded), len(ours))
	}
	for _, pkg := range loaded {
		for _, e := range pkg.Errors {
			t.Error(e)
		}
	}
}
