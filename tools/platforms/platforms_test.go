package platforms

import (
	"os"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestTypes type-checks every package of both modules, and its tests.
func TestTypes(t *testing.T) {
	for _, module := range []string{"../..", "../../node"} {
		loaded, err := packages.Load(&packages.Config{
			Dir: module, Tests: true,
			Env: append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0"),
			Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
				packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes,
		}, "./...")
		if err != nil || len(loaded) == 0 {
			t.Fatalf("%s: %d packages were loaded, %v", module, len(loaded), err)
		}
		for _, pkg := range loaded {
			for _, e := range pkg.Errors {
				t.Error(e)
			}
		}
	}
}
