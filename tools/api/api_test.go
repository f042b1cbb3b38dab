package api

import (
	"flag"
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

var update = flag.Bool("update", false, "accept the API as it is")

const accepted = "node.txt"

// lines describes a package, an exported name, field or method a line. What is no
// part of a line may change without breaking who imports the package.
func lines(pkg *types.Package) []string {
	short := func(p *types.Package) string {
		if p == pkg {
			return ""
		}
		return p.Name()
	}
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, name := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		t, ok := o.(*types.TypeName)
		if !ok {
			text := types.ObjectString(o, short)
			if c, ok := o.(*types.Const); ok {
				text += " = " + c.Val().ExactString()
			}
			add("%s", text)
			continue
		}
		kind := "type " + name
		if s, ok := t.Type().Underlying().(*types.Struct); ok && !t.IsAlias() {
			add("%s struct", kind)
			for f := range s.Fields() {
				if f.Exported() {
					add("%s, field %s %s", kind, f.Name(), types.TypeString(f.Type(), short))
				}
			}
		} else {
			add("%s", types.ObjectString(o, short))
		}
		if types.IsInterface(t.Type()) {
			continue // its methods are in its line
		}
		for m := range types.NewMethodSet(types.NewPointer(t.Type())).Methods() {
			if m.Obj().Exported() {
				add("%s", types.ObjectString(m.Obj(), short))
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestNode(t *testing.T) {
	pkgs, err := packages.Load(&packages.Config{
		Dir:  "../../node",
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedExportFile,
	}, ".")
	if err != nil || len(pkgs) != 1 || len(pkgs[0].Errors) > 0 {
		t.Fatalf("load package node: %v, %v", err, pkgs)
	}
	now := lines(pkgs[0].Types)
	if *update {
		if err := os.WriteFile(accepted, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(accepted)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, l := range before {
		if !slices.Contains(now, l) {
			t.Errorf("breaks programs that import node: gone is\n\t%s", l)
		}
	}
	for _, l := range now {
		if !slices.Contains(before, l) {
			t.Errorf("not yet accepted:\n\t%s", l)
		}
	}
	if t.Failed() {
		t.Log("to accept the API of node as it is, run: go test -C tools ./api -update")
	}
}

func TestLinesTellChanges(t *testing.T) {
	field := func(name string, typ types.Type) *types.Var { return types.NewField(0, nil, name, typ, false) }
	describe := func(fields ...*types.Var) string {
		pkg := types.NewPackage("example.com/p", "p")
		name := types.NewTypeName(0, pkg, "T", nil)
		types.NewNamed(name, types.NewStruct(fields, nil), nil)
		pkg.Scope().Insert(name)
		return strings.Join(lines(pkg), "\n")
	}
	base := describe(field("A", types.Typ[types.Int]))
	if base != "type T struct\ntype T, field A int" {
		t.Errorf("described as %q", base)
	}
	if describe(field("A", types.Typ[types.Int]), field("b", types.Typ[types.Int])) != base {
		t.Error("a field that is not exported shows")
	}
	if describe(field("A", types.Typ[types.Int64])) == base || describe(field("B", types.Typ[types.Int])) == base {
		t.Error("another field does not show")
	}
}
