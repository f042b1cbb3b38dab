package packages

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// node is what Node.js says of itself, which may be another program than the one
// on PATH.
type node struct {
	Exec string `json:"exec"`
}

func (s *Store) node(ctx context.Context, around surroundings) (n node, err error) {
	command, err := lookPath("node", around.host["PATH"])
	if err != nil {
		return n, fmt.Errorf("%w; install Node.js", err)
	}
	if err = s.ask(ctx, around.host, &n, command, "-p", "JSON.stringify({exec: process.execPath})"); err != nil {
		return n, err
	}
	n.Exec, err = filepath.EvalSymlinks(n.Exec)
	return n, err
}

// reads are the folders that node needs, or itself where it lies among others.
func (n node) reads(home string) []string {
	prefix := filepath.Dir(filepath.Dir(n.Exec))
	if _, err := os.Stat(filepath.Join(prefix, "lib", "node_modules")); err == nil && !broad(prefix, home) {
		return withStores([]string{prefix})
	}
	return withStores([]string{n.Exec})
}

// python is what an interpreter says of itself, outside of any environment.
type python struct {
	Exec     string   `json:"exec"` // real, of the interpreter behind an environment or a shim
	Prefixes []string `json:"prefixes"`
	Stdlib   []string `json:"stdlib"`
	Version  []int    `json:"version"`
	Pip      string   `json:"pip"` // the file that runs pip for another interpreter
}

const askPython = `import sys, os, json, sysconfig, importlib.util
spec = importlib.util.find_spec("pip")
pip = os.path.join(os.path.dirname(spec.origin), "__pip-runner__.py") if spec and spec.origin else ""
print(json.dumps({
    "exec": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
    "prefixes": [os.path.realpath(p) for p in (sys.base_prefix, sys.base_exec_prefix)],
    "stdlib": [os.path.realpath(sysconfig.get_path(p)) for p in ("stdlib", "platstdlib")],
    "version": list(sys.version_info[:3]),
    "pip": pip if os.path.exists(pip) else "",
}))`

// python asks an interpreter, and the one behind it.
func (s *Store) python(ctx context.Context, vars map[string]string, command string) (p python, err error) {
	for range 2 {
		// -I: nothing of the environment, the folder or the user's packages counts.
		if err = s.ask(ctx, vars, &p, command, "-I", "-c", askPython); err != nil {
			return p, err
		}
		if len(p.Version) < 2 || p.Exec == "" {
			return p, fmt.Errorf("ask %s: it is no Python that is known", command)
		}
		if p.Exec == command {
			break
		}
		command = p.Exec // pip and modules may be other ones there
	}
	return p, nil
}

func (p python) reads(home string) []string {
	reads := []string{}
	for _, prefix := range p.Prefixes {
		if broad(prefix, home) {
			reads = append(reads, p.Stdlib...)
		} else {
			reads = append(reads, prefix)
		}
	}
	if !slices.ContainsFunc(reads, func(dir string) bool { return within(dir, p.Exec) }) {
		reads = append(reads, p.Exec)
	}
	reads = withStores(reads)
	slices.Sort(reads)
	return slices.Compact(reads)
}

// broad reports whether a folder holds more than an interpreter.
func broad(dir, home string) bool {
	return dir == filepath.Dir(dir) || slices.Contains([]string{"/usr", "/usr/local", "/opt", "/home", "/root", "/var", "/srv", "/mnt"}, dir) ||
		home != "" && within(dir, home)
}

// withStores adds the stores of package managers whose programs load libraries
// from all over them.
func withStores(paths []string) []string {
	for _, store := range []string{"/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew", "/opt/homebrew"} {
		if slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, store+"/") }) {
			paths = append(paths, store)
		}
	}
	return paths
}
