//go:build unix

package packages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/clone"
)

// world is a runner that installs small packages of its own, so that what a
// store does with them can be seen without waiting for a registry. The real
// installers are in the tests beside it.
type world struct {
	store *Store
	dir   string
	bin   string // the folder of its interpreters

	mu       sync.Mutex
	version  string            // what is newest in its registry
	bins     map[string]string // of the package
	before   func(ctx context.Context, step Step) error
	installs []Step
}

func newWorld(t *testing.T, limits Limits, vars ...string) *world {
	t.Helper()
	w := &world{dir: filepath.Join(t.TempDir(), "packages"), bin: realDir(t), version: "1.0.0", bins: map[string]string{"server": "cli.js"}}
	for _, name := range []string{"node", "npm", "python3"} {
		w.program(t, name)
	}
	w.open(t, limits, vars...)
	t.Cleanup(func() { w.store.Close(); clone.Remove(w.dir) })
	return w
}

// realDir is a folder without links on its way.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (w *world) program(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.bin, name), []byte("#!/bin/false\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (w *world) open(t *testing.T, limits Limits, vars ...string) {
	t.Helper()
	var err error
	if w.store != nil {
		w.store.Close()
	}
	w.store, err = Open(w.dir, Options{Runner: w, Limits: limits, Environ: func() []string { return append([]string{"PATH=" + w.bin, "HOME=" + w.bin}, vars...) }})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) get(t *testing.T, line string) Found {
	t.Helper()
	found, err := w.store.Get(t.Context(), wish(t, line), 0)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return found
}

func wish(t *testing.T, line string) Wanted {
	t.Helper()
	all := strings.Fields(line)
	w, ok, err := Parse(all[0], all[1:])
	if !ok || err != nil {
		t.Fatalf("%s: %v %v", line, ok, err)
	}
	return *w
}

// left is what lies in the store.
func (w *world) left(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (w *world) Run(ctx context.Context, step Step) error {
	args := strings.Join(step.Args, " ")
	switch {
	case strings.Contains(args, "process.execPath"):
		return answerJSON(step, map[string]string{"exec": filepath.Join(w.bin, "node")})
	case strings.Contains(args, "base_exec_prefix"):
		return answerJSON(step, python{Exec: filepath.Join(w.bin, "python3"), Prefixes: []string{w.bin}, Stdlib: []string{w.bin}, Version: []int{3, 12, 1}})
	case strings.Contains(args, "metadata.distributions"):
		return answerJSON(step, []dist{{Name: "server", Version: w.version, Pin: "server==" + w.version, Asked: true, Scripts: []string{"server"}}})
	case strings.Contains(args, "compileall"):
		return nil
	case strings.Contains(args, "-m venv"):
		venv := step.Args[len(step.Args)-1]
		return errors.Join(os.MkdirAll(filepath.Join(venv, "bin"), 0o755), os.WriteFile(filepath.Join(venv, "pyvenv.cfg"), []byte("home = /x\n"), 0o644))
	}
	w.mu.Lock()
	w.installs = append(w.installs, step)
	before, version := w.before, w.version
	w.mu.Unlock()
	if before != nil {
		if err := before(ctx, step); err != nil {
			return err
		}
	}
	if strings.Contains(args, "-m pip") {
		script := filepath.Join(filepath.Dir(step.Command), "server")
		return os.WriteFile(script, []byte("#!"+step.Command+"\n"), 0o755)
	}
	return w.install(step.Dir, version)
}

func answerJSON(step Step, v any) error { return json.NewEncoder(step.Out).Encode(v) }

func (w *world) install(tree, version string) error {
	pkg := filepath.Join(tree, "node_modules", "server")
	b, _ := json.Marshal(map[string]any{"name": "server", "version": version, "bin": w.bins})
	return errors.Join(
		os.MkdirAll(pkg, 0o755),
		os.WriteFile(filepath.Join(pkg, "package.json"), b, 0o644),
		os.WriteFile(filepath.Join(pkg, "cli.js"), []byte("#!/usr/bin/env node\n"), 0o755),
		os.WriteFile(filepath.Join(pkg, "other.sh"), []byte("#!/bin/sh\n"), 0o755),
		os.WriteFile(filepath.Join(tree, "package.json"), fmt.Appendf(nil, `{"dependencies": {"server": %q}}`, version), 0o644),
		os.WriteFile(filepath.Join(tree, npmLock), fmt.Appendf(nil, `{"server": %q}`, version), 0o644),
	)
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.installs)
}

func (w *world) publish(version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version = version
}

func parts(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(n, partEnd) })
}
