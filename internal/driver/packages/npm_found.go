package packages

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// foundNPM says how to run a program of npm packages: node with the script
// behind it, or the file itself.
func (s *Store) foundNPM(ctx context.Context, rec *record, w Wanted) (Found, error) {
	interpreter, reads := rec.Interpreter, rec.Reads
	if _, err := os.Stat(interpreter); err != nil {
		// Version managers replace interpreters; packages go on with the next one.
		around := s.surround(w, filepath.Join(s.dir, "nobody"))
		node, err := s.node(ctx, around)
		if err != nil {
			return Found{}, fmt.Errorf("package %q was fetched for %s, which is gone: %w", rec.Name, interpreter, err)
		}
		interpreter, reads = node.Exec, node.reads(around.host["HOME"])
	}
	file, err := rec.npmBin(w)
	if err != nil {
		return Found{}, err
	}
	found := Found{
		Reads: slices.Clone(reads),
		Path:  []string{filepath.Join(rec.inside(), "node_modules", ".bin"), filepath.Dir(interpreter)},
		Env:   map[string]string{"NO_UPDATE_NOTIFIER": "1", "npm_config_update_notifier": "false"},
	}
	program := s.seen(rec, file)
	if options, ok := nodeScript(file); ok {
		found.Command = interpreter
		found.Args = append(append(options, program), w.Args...)
	} else {
		found.Command, found.Args = program, slices.Clone(w.Args)
	}
	return found, nil
}

// npmBin finds the file of a program, by its real name, in the folder.
func (r *record) npmBin(w Wanted) (string, error) {
	name := w.Bin
	if name == "" {
		name = r.Default
	}
	path := r.Bins[name]
	if path == "" && name != "" {
		path = filepath.Join("node_modules", ".bin", name) // of a package that came along
	}
	if path != "" {
		real, err := filepath.EvalSymlinks(filepath.Join(r.dir, path))
		if err == nil && within(r.dir, real) {
			return real, nil
		}
	}
	return "", r.noProgram(w.Bin, "npx -p "+r.Name+" PROGRAM")
}

// noProgram says what there is instead.
func (r *record) noProgram(name, example string) error {
	names := slices.Sorted(maps.Keys(r.Bins))
	if len(names) > 20 {
		names = append(names[:20], "...")
	}
	have := strings.Join(names, ", ")
	switch {
	case name == "" && have == "":
		return fmt.Errorf("package %q (%s) has no program to run; name another package", r.Name, r.Version)
	case name == "":
		return fmt.Errorf("package %q (%s) has several programs and none of its own name; choose one of %s: %s", r.Name, r.Version, have, example)
	case have == "":
		return fmt.Errorf("package %q (%s) has no program %q, nor any other; name another package", r.Name, r.Version, name)
	}
	return fmt.Errorf("package %q (%s) has no program %q; it has %s", r.Name, r.Version, name, have)
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// firstLines reads the beginning of a file.
func firstLines(file string) (first, second string) {
	f, err := os.Open(file)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	r := bufio.NewReader(io.LimitReader(f, 4096))
	first, _ = r.ReadString('\n')
	second, _ = r.ReadString('\n')
	return strings.TrimSpace(first), strings.TrimSpace(second)
}

// nodeScript reports whether node runs a file, and with which options of its own.
func nodeScript(file string) (options []string, ok bool) {
	first, _ := firstLines(file)
	line, script := strings.CutPrefix(first, "#!")
	if !script {
		return nil, slices.Contains([]string{".js", ".mjs", ".cjs"}, filepath.Ext(file))
	}
	words := strings.Fields(line)
	if len(words) > 0 && filepath.Base(words[0]) == "env" {
		words = words[1:]
		for len(words) > 0 && (words[0] == "-S" || words[0] == "--") {
			words = words[1:]
		}
	}
	if len(words) == 0 || filepath.Base(words[0]) != "node" && filepath.Base(words[0]) != "nodejs" {
		return nil, false
	}
	return words[1:], true
}
