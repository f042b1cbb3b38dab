package tine_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// poorNames say nothing about what a package owns.
var poorNames = []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "base", "misc"}

// packageFaults lists what is wrong with the packages' names and doc comments.
func packageFaults(pkgs []goPackage) []string {
	var faults []string
	for _, p := range pkgs {
		if len(p.GoFiles) == 0 {
			continue
		}
		for _, part := range append(strings.Split(p.ImportPath, "/"), p.Name) {
			if slices.Contains(poorNames, part) {
				faults = append(faults, fmt.Sprintf("%s: %q says nothing about what the package owns", p.ImportPath, part))
				break
			}
		}
		switch {
		case p.Doc == "":
			faults = append(faults, p.ImportPath+": no doc comment; say what the package owns")
		case p.Name != "main" && !strings.HasPrefix(p.Doc, "Package "+p.Name+" "):
			faults = append(faults, fmt.Sprintf("%s: the doc comment does not begin with \"Package %s\": %s", p.ImportPath, p.Name, p.Doc))
		}
	}
	return faults
}

func TestPackages(t *testing.T) {
	for _, f := range packageFaults(listPackages(t)) {
		t.Error(f)
	}
}

func TestPackagesCanFail(t *testing.T) {
	files := []string{"a.go"}
	for _, tt := range []struct {
		pkg  goPackage
		want int
	}{
		{goPackage{ImportPath: module + "/api", Name: "api", Doc: "Package api holds wire types.", GoFiles: files}, 0},
		{goPackage{ImportPath: module + "/cmd/tine", Name: "main", Doc: "Tine is the gateway.", GoFiles: files}, 0},
		{goPackage{ImportPath: module + "/api", Name: "api", GoFiles: files}, 1},
		{goPackage{ImportPath: module + "/api", Name: "api", Doc: "Wire types.", GoFiles: files}, 1},
		{goPackage{ImportPath: module + "/internal/util", Name: "util", Doc: "Package util helps.", GoFiles: files}, 1},
		{goPackage{ImportPath: module + "/internal/common/text", Name: "text", Doc: "Package text is text.", GoFiles: files}, 1},
		{goPackage{ImportPath: module, Name: "tine"}, 0},
	} {
		if got := packageFaults([]goPackage{tt.pkg}); len(got) != tt.want {
			t.Errorf("%+v: %q, want %d", tt.pkg, got, tt.want)
		}
	}
}

const maxLines = 800

// hosts are the registries a checkout must not depend on by name: which one is
// used is the business of whoever builds. Written in two parts so that this file
// passes its own check.
var hosts = []string{
	"registry.np" + "mjs.org", "registry.ya" + "rnpkg.com", "py" + "pi.org", "files.python" + "hosted.org",
	"proxy.go" + "lang.org", "sum.go" + "lang.org", "registry-1.dock" + "er.io", "index.dock" + "er.io",
	"dock" + "er.io/", "gh" + "cr.io", "gc" + "r.io", "qu" + "ay.io", "deb.deb" + "ian.org",
}

// fileFaults lists what is wrong with one file of the tree.
func fileFaults(name string, data []byte) []string {
	var faults []string
	if n := bytes.Count(data, []byte("\n")); n > maxLines && slices.Contains([]string{".go", ".py", ".mjs", ".js", ".ts", ".sh"}, filepath.Ext(name)) {
		faults = append(faults, fmt.Sprintf("%s: %d lines, more than %d; it is about more than one thing", name, n, maxLines))
	}
	for _, host := range hosts {
		if bytes.Contains(data, []byte(host)) {
			faults = append(faults, fmt.Sprintf("%s: names the registry %s; leave the choice to whoever builds", name, host))
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		faults = append(faults, silentSkips(name, data)...)
		faults = append(faults, bareSleeps(name, data)...)
	}
	return faults
}

// bareSleeps finds sleeps in real time that don't say on their line what they are
// for: to wait for something is no reason, as there is testkit.Eventually.
func bareSleeps(name string, src []byte) []string {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return []string{err.Error()}
	}
	said := map[int]bool{}
	for _, c := range file.Comments {
		said[files.Position(c.Pos()).Line] = true
	}
	var faults []string
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch line := files.Position(call.Pos()).Line; {
		case isCall(call, "synctest", "Test"):
			return false
		case isCall(call, "time", "Sleep") && !said[line]:
			faults = append(faults, fmt.Sprintf("%s:%d: a sleep that does not say why; wait with testkit.Eventually, or for a channel", name, line))
		}
		return true
	})
	return faults
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// silentSkips finds tests that could be skipped where they must not be. A
// function that skips has to look at CI, and fail there, or skip for the
// operating system. Fuzz targets skip inputs, which is another thing.
func silentSkips(name string, src []byte) []string {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		var skips, excused bool
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
					skips = true
				}
			case *ast.BasicLit:
				excused = excused || n.Value == `"CI"`
			case *ast.SelectorExpr:
				excused = excused || n.Sel.Name == "GOOS"
			}
			return true
		})
		if skips && !excused {
			faults = append(faults, fmt.Sprintf("%s: %s skips without looking at CI, where a skip must be a failure", name, fn.Name.Name))
		}
	}
	return faults
}

func TestFiles(t *testing.T) {
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", ".cache", "bin", "dist", "node_modules"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, f := range fileFaults(name, data) {
			t.Error(f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesCanFail(t *testing.T) {
	test := func(body string) []byte { return []byte("package p\nfunc helper(t T) {" + body + "}\n") }
	for _, tt := range []struct {
		name string
		data []byte
		want int
	}{
		{"a.go", []byte("package a\n"), 0},
		{"a.go", bytes.Repeat([]byte("\n"), maxLines+1), 1},
		{"a.md", bytes.Repeat([]byte("\n"), maxLines+1), 0},
		{"lock.json", []byte(`{"resolved": "https://` + hosts[0] + `/x"}`), 1},
		{"a_test.go", test("t.Skip()"), 1},
		{"a_test.go", test(`if os.Getenv("CI") != "" { t.Fatal() }; t.Skipf("x")`), 0},
		{"a_test.go", test(`if runtime.GOOS == "windows" { t.Skip() }`), 0},
		{"a_test.go", []byte("package p\nfunc FuzzX(f F) { f.Fuzz(func(t T) { t.Skip() }) }\n"), 0},
		{"a.go", test("t.Skip()"), 0},
		{"a_test.go", test("time.Sleep(1)"), 1},
		{"a_test.go", test("time.Sleep(1) // killed at any moment\n"), 0},
		{"a_test.go", test("synctest.Test(t, func(t T) { time.Sleep(1) })"), 0},
		{"a.go", test("time.Sleep(1)"), 0},
	} {
		if got := fileFaults(tt.name, tt.data); len(got) != tt.want {
			t.Errorf("%s: %q, want %d", tt.name, got, tt.want)
		}
	}
}
