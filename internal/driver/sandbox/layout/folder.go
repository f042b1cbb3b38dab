package layout

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// manifests are files that a package's own folder has. installed are written when what a
// program loads is installed or upgraded.
var (
	manifests = []string{"package.json", "pyproject.toml", "go.mod", "setup.py", "Cargo.toml", "Gemfile", "composer.json", "deno.json"}
	installed = []string{"node_modules/.package-lock.json", "node_modules/.yarn-integrity", "node_modules/.modules.yaml", "pyvenv.cfg"}
)

// Bounds of what is looked at to find what belongs to a program.
const (
	maxPaths   = 64 << 10 // of a file with paths
	maxModules = 10_000   // of a folder of packages
	maxLinked  = 256      // packages that are links
)

// withValue are options of interpreters after which another file than the script
// may come; ends are those after which there is no script.
var (
	withValue = []string{"-r", "--require", "--import", "--loader", "--experimental-loader", "--env-file"}
	ends      = map[string]*regexp.Regexp{
		"python": endsPython, "pypy": endsPython, "node": endsNode, "nodejs": endsNode,
		"ruby": endsPerl, "perl": endsPerl, "php": regexp.MustCompile(`^-r`),
		"sh": endsShell, "bash": endsShell, "dash": endsShell, "zsh": endsShell, "ksh": endsShell,
	}
	endsPython = regexp.MustCompile(`^-[bBdEhiIOPqRsSuvVx]*[mc]`)
	endsNode   = regexp.MustCompile(`^(-e|-p|-pe|--eval|--print)(=|$)`)
	endsPerl   = regexp.MustCompile(`^-[lnpwi0]*[eE]`)
	endsShell  = regexp.MustCompile(`^-[a-z]*c$`)
)

// scripts asks for the folder of the script that an interpreter is given: of its
// first argument that is a file.
func (p *planner) scripts(interpreter string) {
	end := ends[interpreter]
	before := ""
	for _, arg := range p.w.Args {
		option, value, _ := strings.Cut(arg, "=")
		switch {
		case end != nil && end.MatchString(arg):
			return
		case slices.Contains([]string{"-cp", "-classpath", "--class-path"}, before):
			for _, at := range strings.Split(arg, ":") {
				p.hint(p.abs(strings.TrimSuffix(at, "/*")))
			}
		case strings.HasPrefix(arg, "-"):
			if at := p.abs(value); slices.Contains(withValue, option) && value != "" && p.host.isFile(at) {
				p.folderOf(at)
			}
		case arg != "" && p.host.isFile(p.abs(arg)):
			p.folderOf(p.abs(arg))
			p.script(p.abs(arg))
			if !slices.Contains(withValue, before) {
				return
			}
		}
		before = arg
	}
}

// script asks for a file without which there is nothing to run.
func (p *planner) script(at string) {
	real, _, err := p.host.real(at)
	if err == nil {
		p.wishes = append(p.wishes, wish{path: at, own: p.ofPackages(real), what: "the script of the command"})
		p.must = append(p.must, at)
	}
}

// abs is a path as the program sees it.
func (p *planner) abs(at string) string {
	if path.IsAbs(at) || at == "" {
		return at
	}
	dir := p.w.Cwd
	if dir == "" {
		dir = "/"
	}
	return dir + "/" + at // not cleaned: there may be links before a ..
}

// folderOf asks for the folder that a script belongs to, which is its package's.
func (p *planner) folderOf(script string) {
	real, _, err := p.host.real(script)
	if err != nil {
		return
	}
	p.stamps = append(p.stamps, real)
	dir := path.Dir(real)
	p.modulesAbove(dir)
	if before, _, ok := strings.Cut(real, "/node_modules/"); ok {
		before = path.Join("/", before)
		p.modules(before)
		if p.host.isFile(path.Join(before, "package.json")) && !p.broad(before) {
			p.own(before)
		}
		return
	}
	for at := dir; !p.broad(at); at = path.Dir(at) {
		if p.host.isFile(path.Join(at, "pyvenv.cfg")) {
			p.venv(at)
			return
		}
	}
	for at := dir; !p.broad(at); at = path.Dir(at) {
		if slices.ContainsFunc(manifests, func(name string) bool { return p.host.isFile(path.Join(at, name)) }) {
			p.own(at)
			return
		}
	}
	if p.broad(dir) {
		p.hint(real)
		return
	}
	p.own(dir)
}

// own asks for a package's folder.
func (p *planner) own(dir string) {
	p.hint(dir)
	for _, name := range installed {
		p.stamps = append(p.stamps, path.Join(dir, name))
	}
}

// modulesAbove asks for the packages in which Node looks for what a script needs:
// those of every folder above it.
func (p *planner) modulesAbove(dir string) {
	for at := dir; at != "/"; at = path.Dir(at) {
		if path.Base(at) != "node_modules" {
			p.modules(at)
		}
	}
}

// modules asks for the packages of a folder, and for those that are links to
// folders elsewhere.
func (p *planner) modules(dir string) {
	modules := path.Join(dir, "node_modules")
	if !p.host.isDir(modules) || slices.ContainsFunc(p.wishes, func(w wish) bool { return w.path == modules }) {
		return
	}
	p.hint(modules)
	for _, name := range installed {
		p.stamps = append(p.stamps, path.Join(dir, name))
	}
	left := maxLinked
	p.linked(modules, &left)
}

func (p *planner) linked(dir string, left *int) {
	list, err := p.host.readDir(dir, maxModules)
	if err != nil {
		return
	}
	for _, e := range list {
		at := path.Join(dir, e.Name())
		switch {
		case e.IsDir() && strings.HasPrefix(e.Name(), "@"):
			p.linked(at, left)
		case e.Type()&fs.ModeSymlink != 0 && *left > 0:
			*left--
			if real, info, err := p.host.stat(at); err == nil && info.IsDir() && !within(dir, real) && !p.broad(real) {
				p.hint(real)
			}
		}
	}
}

// venv asks for an environment of Python, the interpreter that it is made of, and
// the folders that its packages are in by reference.
func (p *planner) venv(dir string) {
	b, err := p.host.head(path.Join(dir, "pyvenv.cfg"), maxPaths)
	if err != nil || p.broad(dir) {
		return
	}
	p.own(dir)
	for line := range bytes.Lines(b) {
		key, value, _ := strings.Cut(string(line), "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if (key == "home" || key == "base-prefix") && path.IsAbs(value) {
			p.basePython(path.Clean(value))
		}
	}
	for _, lib := range []string{"lib", "lib64"} {
		list, _ := p.host.readDir(path.Join(dir, lib), maxEntries)
		for _, e := range list {
			p.references(path.Join(dir, lib, e.Name(), "site-packages"))
		}
	}
}

// basePython asks for the interpreter in a folder, or of a prefix.
func (p *planner) basePython(dir string) {
	list, err := p.host.readDir(dir, maxModules)
	if err != nil {
		return
	}
	for _, e := range list {
		if !python.MatchString(e.Name()) && e.Name() != "python" {
			continue
		}
		at := path.Join(dir, e.Name())
		p.hint(at)
		if real, _, err := p.host.real(at); err == nil {
			p.prefix(real)
			p.loader(real)
		}
	}
}

// references asks for the folders that .pth files name.
func (p *planner) references(dir string) {
	list, err := p.host.readDir(dir, maxModules)
	if err != nil {
		return
	}
	for _, e := range list {
		if path.Ext(e.Name()) != ".pth" {
			continue
		}
		b, err := p.host.head(path.Join(dir, e.Name()), maxPaths)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			if at := strings.TrimSpace(string(line)); path.IsAbs(at) && p.host.isDir(at) && !p.broad(path.Clean(at)) {
				p.hint(at)
			}
		}
	}
}
