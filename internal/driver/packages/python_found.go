package packages

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// listPython lists what is installed in a folder, from outside: files that
// Python runs when it starts in the environment are not run.
const listPython = `import sys, json
from importlib import metadata
dists = []
for d in metadata.distributions(path=[sys.argv[1]]):
    name = d.metadata["Name"]
    if not name:
        continue
    pin = name + "==" + d.version
    try:
        origin = json.loads(d.read_text("direct_url.json") or "null")
        if origin:
            vcs = origin.get("vcs_info")
            pin = name + " @ " + (vcs["vcs"] + "+" + origin["url"] + "@" + vcs["commit_id"] if vcs else origin["url"])
    except (ValueError, KeyError):
        origin = None
    dists.append({
        "name": name, "version": d.version, "pin": pin,
        "asked": d.read_text("REQUESTED") is not None, "direct": bool(origin),
        "scripts": sorted({e.name for e in d.entry_points if e.group == "console_scripts"}),
    })
print(json.dumps(dists))`

type dist struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Pin     string   `json:"pin"`
	Asked   bool     `json:"asked"`
	Direct  bool     `json:"direct"`
	Scripts []string `json:"scripts"`
}

// pythonRecord looks at what was installed and writes its lock.
func (f *fetching) pythonRecord(ctx context.Context, base python, venv string) (*record, error) {
	var dists []dist
	if err := f.store.ask(ctx, f.around.vars, &dists, base.Exec, "-I", "-c", listPython, base.site(venv)); err != nil {
		return nil, err
	}
	slices.SortFunc(dists, func(a, b dist) int { return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	var lock bytes.Buffer
	for _, d := range dists {
		fmt.Fprintln(&lock, mask(d.Pin))
	}
	if err := os.WriteFile(filepath.Join(f.tree, pythonLock), lock.Bytes(), 0o644); err != nil {
		return nil, err
	}
	main := pythonMain(dists, f.w)
	if main == nil {
		return nil, fmt.Errorf("it is not among the %d packages that were installed", len(dists))
	}
	rec := &record{
		LockFile: pythonLock, Name: main.Name, Version: main.Version, Bins: map[string]string{},
		Interpreter: base.Exec, Reads: base.reads(f.around.host["HOME"]),
	}
	own := map[string]string{}
	for _, d := range dists {
		for _, name := range d.Scripts {
			file := filepath.Join(venvBin(venvDir), scriptName(name))
			if _, err := os.Stat(filepath.Join(f.tree, file)); err != nil || strings.ContainsAny(name, `/\`) {
				continue
			}
			rec.Bins[name] = file
			if d.Name == main.Name {
				own[name] = file
			}
		}
	}
	// Each script is a file of its own; a second name of the same is not known.
	if _, ok := own[main.Name]; ok {
		rec.Default = main.Name
	} else if name := requirementName(main.Name); own[name] != "" {
		rec.Default = name
	} else if len(own) == 1 {
		for rec.Default = range own {
		}
	} else if file := filepath.Join(venvBin(venvDir), scriptName(name)); len(own) == 0 && exists(filepath.Join(f.tree, file)) {
		rec.Default, rec.Bins[name] = name, file // a program that is no entry point
	}
	return rec, nil
}

func scriptName(name string) string {
	if filepath.Separator == '\\' {
		return name + ".exe"
	}
	return name
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pythonMain is the package that was meant: of a repository or an archive, the
// installer alone knows its name.
func pythonMain(dists []dist, w Wanted) *dist {
	want := requirementName(w.Package)
	for i, d := range dists {
		switch {
		case want != "" && requirementName(d.Name) == want:
			return &dists[i]
		case want == "" && d.Asked && d.Direct && !slices.ContainsFunc(w.Extra, func(spec string) bool { return requirementName(spec) == requirementName(d.Name) }):
			return &dists[i]
		}
	}
	return nil
}

// foundPython says how to run a program of an environment: its Python with the
// script, or the file itself.
func (s *Store) foundPython(rec *record, w Wanted) (Found, error) {
	if rec.stale() {
		return Found{}, errStale
	}
	name := w.Bin
	if name == "" {
		name = rec.Default
	}
	venv := filepath.Join(rec.inside(), venvDir)
	path := rec.Bins[name]
	if path == "" && name != "" {
		path = filepath.Join(venvBin(venvDir), scriptName(name)) // of a package without entry points
	}
	file := filepath.Join(rec.dir, path)
	if st, err := os.Stat(file); path == "" || err != nil || !st.Mode().IsRegular() {
		return Found{}, rec.noProgram(w.Bin, "uvx --from "+rec.Name+" PROGRAM")
	}
	var reads []string
	for _, at := range rec.Reads {
		reads = append(reads, s.seen(rec, at))
	}
	program := s.seen(rec, file)
	found := Found{
		Reads: reads,
		Path:  []string{venvBin(venv)},
		Env:   map[string]string{"VIRTUAL_ENV": venv, "PYTHONDONTWRITEBYTECODE": "1"},
	}
	if pythonScript(file) {
		found.Command = venvPython(venv)
		found.Args = append([]string{program}, w.Args...)
	} else {
		found.Command, found.Args = program, slices.Clone(w.Args)
	}
	return found, nil
}

// pythonScript reports whether a file is a script that installers made: where a
// path is too long for a first line, it is a shell script that Python reads too.
func pythonScript(file string) bool {
	first, second := firstLines(file)
	return strings.HasPrefix(first, "#!") && (strings.Contains(filepath.Base(first), "python") || strings.HasPrefix(second, "'''exec'"))
}

// stale reports whether the interpreter that an environment is bound to is gone.
func (r *record) stale() bool { return r.Kind == Python && !exists(r.Interpreter) }

// pins are the versions of the lock.
func (r *record) pins() []string {
	b, err := readFile(filepath.Join(r.dir, r.LockFile), maxLock)
	if err != nil {
		return nil
	}
	var pins []string
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			pins = append(pins, line)
		}
	}
	return pins
}
