package packages

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const npmLock = "package-lock.json"

// npm installs packages as a project of their own, whose lock pins all of them.
func (f *fetching) npm(ctx context.Context) (*record, error) {
	fail := func(err error) error { return fmt.Errorf("fetch package %q: %w", mask(f.w.Package), err) }
	f.step.Store("node")
	node, err := f.store.node(ctx, f.around)
	if err != nil {
		return nil, fail(err)
	}
	command, args, err := npmProgram(node.Exec, f.around.vars["PATH"])
	if err != nil {
		return nil, fail(err)
	}
	// The interpreter that was found is the one that scripts get, shims or not.
	f.around.vars["PATH"] = filepath.Dir(node.Exec) + string(filepath.ListSeparator) + f.around.vars["PATH"]
	if err := os.WriteFile(filepath.Join(f.tree, "package.json"), []byte(`{"name": "packages", "private": true}`+"\n"), 0o644); err != nil {
		return nil, fail(err)
	}
	args = append(args, "install", "--prefix", f.tree,
		"--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=warn",
		"--save", "--save-exact", "--package-lock", "--bin-links", "--global=false", "--workspaces=false", "--omit=dev",
		"--cache", filepath.Join(f.home, "npm"), fmt.Sprintf("--ignore-scripts=%t", !f.w.AllowScripts), "--")
	if err := f.run(ctx, "npm install", command, append(args, f.w.specs()...)...); err != nil {
		return nil, err
	}
	rec, err := f.npmRecord()
	if err != nil {
		return nil, fail(err)
	}
	rec.Interpreter, rec.Reads = node.Exec, node.reads(f.around.host["HOME"])
	if rec.Sum, err = f.name(); err != nil {
		return nil, fail(err)
	}
	return rec, nil
}

// npmProgram finds npm without the shims that version managers put before it:
// they look for their things in a home, which is another one here.
func npmProgram(node, path string) (command string, args []string, err error) {
	beside := filepath.Join(filepath.Dir(filepath.Dir(node)), "lib", "node_modules", "npm", "bin", "npm-cli.js")
	if _, err := os.Stat(beside); err == nil {
		return node, []string{beside}, nil
	}
	found, err := lookPath("npm", path)
	if err != nil {
		return "", nil, fmt.Errorf("%w; install npm, which comes with Node.js", err)
	}
	if real, err := filepath.EvalSymlinks(found); err == nil && strings.HasSuffix(real, ".js") {
		return node, []string{real}, nil
	}
	return found, nil, nil
}

// manifest is what is needed of a package.json.
type manifest struct {
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Bin          json.RawMessage   `json:"bin"`
	Dependencies map[string]string `json:"dependencies"`
}

const (
	maxManifest = 4 << 20
	maxBins     = 2000
)

func readManifest(dir string) (m manifest, err error) {
	b, err := readFile(filepath.Join(dir, "package.json"), maxManifest)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	return m, err
}

// bins are the programs of a package, by name, as paths in its folder.
func (m manifest) bins() map[string]string {
	all := map[string]string{}
	var one string
	if json.Unmarshal(m.Bin, &one) == nil && one != "" {
		all[unscoped(m.Name)] = one
	} else {
		json.Unmarshal(m.Bin, &all) // what is neither is no program
	}
	for name, path := range all {
		if clean := filepath.Clean(filepath.FromSlash(path)); filepath.IsLocal(clean) && len(all) <= maxBins {
			all[name] = clean
		} else {
			delete(all, name)
		}
	}
	return all
}

func unscoped(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// npmRecord looks at what was installed.
func (f *fetching) npmRecord() (*record, error) {
	root, err := readManifest(f.tree)
	if err != nil {
		return nil, fmt.Errorf("npm left no package.json: %w", err)
	}
	rec := &record{LockFile: npmLock, Bins: map[string]string{}}
	rec.Name = npmMain(root, f.w)
	names := slices.Sorted(maps.Keys(root.Dependencies))
	if !slices.Contains(names, rec.Name) {
		return nil, fmt.Errorf("npm installed %q and not what was asked for", names)
	}
	// The package itself comes last: its programs win.
	names = append(slices.DeleteFunc(names, func(n string) bool { return n == rec.Name }), rec.Name)
	for _, name := range names {
		dir := filepath.Join("node_modules", filepath.FromSlash(name))
		m, err := readManifest(filepath.Join(f.tree, dir))
		if err != nil {
			return nil, fmt.Errorf("package %q has no package.json that can be read: %w", name, err)
		}
		m.Name = name // an alias has its programs under the name of the alias
		own := m.bins()
		for bin, path := range own {
			rec.Bins[bin] = filepath.Join(dir, path)
		}
		if name == rec.Name {
			rec.Version, rec.Default = m.Version, defaultBin(own, unscoped(name))
		}
	}
	// These are seen inside, and npm writes URLs as they were given.
	for _, name := range []string{"package.json", npmLock, filepath.Join("node_modules", ".package-lock.json")} {
		if err := maskFile(filepath.Join(f.tree, name)); err != nil {
			return nil, err
		}
	}
	return rec, nil
}

// npmMain is the name of the package that was meant: of a repository or an
// archive, npm alone knows it.
func npmMain(root manifest, w Wanted) string {
	if name, _ := splitNPM(w.Package); root.Dependencies[name] != "" {
		return name
	}
	rest := maps.Clone(root.Dependencies)
	for _, extra := range w.Extra {
		name, _ := splitNPM(extra)
		delete(rest, name)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		return name
	}
	return ""
}

// defaultBin is the program that is meant by a package's name: its only one, or
// the one that is called like it.
func defaultBin(bins map[string]string, name string) string {
	if _, ok := bins[name]; ok {
		return name
	}
	names := slices.Sorted(maps.Keys(bins))
	for _, other := range names {
		if bins[other] != bins[names[0]] {
			return ""
		}
	}
	if len(names) > 0 {
		return names[0]
	}
	return ""
}

func maskFile(name string) error {
	b, err := readFile(name, maxLock)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if clean := secretUser.ReplaceAll(b, []byte("${1}"+masked+"@")); len(clean) != len(b) || string(clean) != string(b) {
		return os.WriteFile(name, clean, 0o644)
	}
	return nil
}
