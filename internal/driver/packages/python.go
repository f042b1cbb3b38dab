package packages

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const (
	pythonLock = "requirements.txt"
	venvDir    = "venv"
)

func venvBin(venv string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(venv, "Scripts")
	}
	return filepath.Join(venv, "bin")
}

func venvPython(venv string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(venv, "Scripts", "python.exe")
	}
	return filepath.Join(venv, "bin", "python")
}

func (p python) site(venv string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(venv, "Lib", "site-packages")
	}
	return filepath.Join(venv, "lib", fmt.Sprintf("python%d.%d", p.Version[0], p.Version[1]), "site-packages")
}

// python installs packages into an environment, with uv where the host has it.
func (f *fetching) python(ctx context.Context) (*record, error) {
	fail := func(err error) error { return fmt.Errorf("fetch package %q: %w", mask(f.w.Package), err) }
	venv := filepath.Join(f.tree, venvDir)
	wants := append([]string{"--"}, f.w.specs()...)
	if f.pins != nil {
		pins := filepath.Join(f.home, "pins.txt")
		if err := os.WriteFile(pins, []byte(strings.Join(f.pins, "\n")+"\n"), 0o600); err != nil {
			return nil, fail(err)
		}
		wants = []string{"--no-deps", "-r", pins}
	}
	f.step.Store("python")
	var base python
	var err error
	if uv, lookErr := lookPath("uv", f.around.vars["PATH"]); lookErr == nil {
		base, err = f.withUV(ctx, uv, venv, wants)
	} else {
		base, err = f.withPip(ctx, venv, wants)
	}
	if err != nil {
		return nil, err
	}
	sum, err := f.name(base.version(), f.store.seenPython(base.Exec))
	if err != nil {
		return nil, fail(err)
	}
	f.at = filepath.Join(Inside, sum)
	if err := f.settle(venv, base); err != nil {
		return nil, fail(err)
	}
	// Later the compiled files can't be written, and each start would do it again.
	// They are taken as they are: the sources don't change either. Some packages
	// have files that are no Python of this version; those stay as they are.
	f.step.Store("compile")
	compile := []string{"-I", "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"}
	if base.Version[0] > 3 || base.Version[1] >= 9 {
		compile = append(compile, "-s", f.tree, "-p", f.at)
	}
	var ignored answer
	err = f.store.opts.Runner.Run(ctx, Step{Command: base.Exec, Args: append(compile, base.site(venv)), Env: environ(f.around.vars), Dir: f.tree, Out: &ignored})
	if ctx.Err() != nil {
		return nil, explain(ctx, f.w, "compile", f.out, err)
	}
	rec, err := f.pythonRecord(ctx, base, venv)
	if err != nil {
		return nil, fail(err)
	}
	rec.Sum = sum
	return rec, nil
}

// withUV makes the environment with uv, which chooses and even downloads the
// interpreter as uvx would.
func (f *fetching) withUV(ctx context.Context, uv, venv string, wants []string) (base python, err error) {
	f.around.vars["UV_CACHE_DIR"] = filepath.Join(f.home, "uv")
	args := []string{"venv", "--no-project", "--no-progress"}
	if f.w.Python != "" {
		args = append(args, "--python", f.w.Python)
	}
	if err := f.run(ctx, "uv venv", uv, append(args, venv)...); err != nil {
		return base, err
	}
	if base, err = f.store.python(ctx, f.around.host, venvPython(venv)); err != nil {
		return base, fmt.Errorf("fetch package %q: %w", mask(f.w.Package), err)
	}
	args = []string{"pip", "install", "--python", venvPython(venv), "--no-progress"}
	if !f.w.AllowScripts {
		args = append(args, "--no-build")
	}
	return base, f.run(ctx, "uv pip install", uv, append(args, wants...)...)
}

// withPip makes the environment with the host's Python and its pip, or with one
// that Python brings along.
func (f *fetching) withPip(ctx context.Context, venv string, wants []string) (base python, err error) {
	base, err = f.hostPython(ctx)
	if err != nil {
		return base, fmt.Errorf("fetch package %q: %w", mask(f.w.Package), err)
	}
	args := []string{"-I", "-m", "venv"}
	pip := []string{"-I", "-m", "pip"}
	if base.Pip != "" {
		args = append(args, "--without-pip")
		pip = []string{base.Pip}
	}
	if err := f.run(ctx, "python -m venv", base.Exec, append(args, venv)...); err != nil {
		return base, err
	}
	pip = append(pip, "install", "--no-compile", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-cache-dir", "--no-warn-script-location")
	if !f.w.AllowScripts {
		pip = append(pip, "--only-binary", ":all:")
	}
	return base, f.run(ctx, "pip install", venvPython(venv), append(pip, wants...)...)
}

// hostPython finds the interpreter that was asked for.
func (f *fetching) hostPython(ctx context.Context) (base python, err error) {
	path := f.around.host["PATH"]
	want := strings.TrimPrefix(f.w.Python, "python")
	names := []string{"python3", "python"}
	if want != "" {
		parts := strings.SplitN(want, ".", 3)
		names = []string{f.w.Python, "python" + strings.Join(parts[:min(2, len(parts))], ".")}
		// A shim of pyenv refuses versions that are installed and not chosen.
		root := cmp.Or(f.around.host["PYENV_ROOT"], filepath.Join(f.around.host["HOME"], ".pyenv"))
		if version.MatchString(want) {
			installed, _ := filepath.Glob(filepath.Join(root, "versions", want+"*", "bin", "python3"))
			slices.Reverse(installed)
			names = append(names, installed...)
		}
		names = append(names, "python3")
	}
	for _, name := range names {
		command, lookErr := lookPath(name, path)
		if lookErr != nil {
			continue
		}
		found, askErr := f.store.python(ctx, f.around.host, command)
		if ctx.Err() != nil {
			return base, context.Cause(ctx)
		}
		switch {
		case askErr != nil:
			err = askErr // a shim of a version that is not chosen; the next may do
		case !found.is(want) && !strings.ContainsAny(f.w.Python, `/\`):
			err = fmt.Errorf("%s is Python %s", command, found.version())
		default:
			return found, nil
		}
	}
	if want == "" {
		want = "3"
	}
	if err != nil {
		return base, fmt.Errorf("no Python %s was found (%w): %w; install it, or uv, which brings it along", want, err, ErrNoTool)
	}
	return base, fmt.Errorf("no Python %s is on PATH: %w; install it, or uv, which brings it along", want, ErrNoTool)
}

func (p python) version() string {
	var parts []string
	for _, n := range p.Version {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ".")
}

func (p python) is(want string) bool {
	return want == "" || strings.HasPrefix(p.version()+".", strings.TrimSuffix(want, ".")+".")
}

// settle makes an environment fit for its place inside: it names the real
// interpreter, whatever links led to it, and scripts name the environment where
// it will be.
func (f *fetching) settle(venv string, base python) error {
	if runtime.GOOS != "windows" {
		bin := venvBin(venv)
		for _, name := range []string{"python", "python3", fmt.Sprintf("python%d.%d", base.Version[0], base.Version[1])} {
			target := "python"
			if name == "python" {
				target = f.store.seenPython(base.Exec)
			}
			if err := os.Remove(filepath.Join(bin, name)); err != nil && !os.IsNotExist(err) {
				return err
			}
			if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
				return err
			}
		}
	}
	cfg := filepath.Join(venv, "pyvenv.cfg")
	b, err := readFile(cfg, 64<<10)
	if err != nil {
		return err
	}
	lines := strings.Split(string(b), "\n")
	for i, line := range lines {
		if key, _, ok := strings.Cut(line, "="); ok && strings.TrimSpace(key) == "home" {
			lines[i] = "home = " + filepath.Dir(f.store.seenPython(base.Exec))
		}
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "command") })
	if err := os.WriteFile(cfg, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return err
	}
	return filepath.WalkDir(venvBin(venv), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		st, err := d.Info()
		if err != nil || st.Size() > maxScript {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(b, []byte(f.tree)) || bytes.IndexByte(b, 0) >= 0 {
			return err
		}
		return os.WriteFile(path, bytes.ReplaceAll(b, []byte(f.tree), []byte(f.at)), st.Mode().Perm())
	})
}
