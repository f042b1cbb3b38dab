package layout

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// interpreters take the path of a script.
var interpreters = regexp.MustCompile(`^(python|pypy|node|nodejs|deno|bun|tsx|ts-node|ruby|jruby|perl|php|lua|luajit|java|sh|bash|dash|zsh|ksh|Rscript|julia|escript|tclsh|guile|dotnet|mono)(-?[0-9][0-9.]*)?$`)

// maxScripts bounds how often an interpreter is a script itself.
const maxScripts = 4

// program asks for the command, and for what it needs to run.
func (p *planner) program() error {
	real, info, err := p.host.stat(p.w.Command)
	if p.w.Running != nil && (err != nil || !info.Mode().IsRegular()) {
		return nil // the program runs without it
	}
	if err != nil {
		return fmt.Errorf("command %s can't be looked at: %w; mend the server's command", p.w.Command, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("command %s is not a file; mend the server's command", p.w.Command)
	}
	p.wishes = append(p.wishes, wish{path: p.w.Command, own: p.ofPackages(real), what: "command"})
	p.needs(p.w.Command, 0)
	for _, at := range []string{p.w.Command, real} {
		if m := interpreters.FindStringSubmatch(path.Base(at)); m != nil {
			p.scripts(m[1])
			break
		}
	}
	for _, name := range []string{"PYTHONPATH", "NODE_PATH", "PERL5LIB", "RUBYLIB", "CLASSPATH", "LD_LIBRARY_PATH"} {
		for _, at := range strings.Split(lookup(p.w.Env, name), ":") {
			if path.IsAbs(at) && !p.broad(path.Clean(at)) {
				p.hint(at)
			}
		}
	}
	return nil
}

// ofPackages reports whether a path is in what packages need.
func (p *planner) ofPackages(real string) bool {
	return slices.ContainsFunc(p.w.Reads, func(dir string) bool {
		r, _, err := p.host.real(dir)
		return err == nil && within(r, real)
	})
}

// needs asks for what a program needs: a script its interpreter and its folder, a
// binary its loader and its libraries.
func (p *planner) needs(command string, depth int) {
	real, links, err := p.host.real(command)
	if err != nil || depth > maxScripts {
		return
	}
	p.stamps = append(p.stamps, real)
	p.store(real)
	// An environment of Python is one by the place of the link to the interpreter.
	for _, l := range append(links, link{at: real}) {
		p.venv(path.Dir(path.Dir(l.at)))
	}
	head, err := p.host.head(real, 4096)
	if err != nil {
		return
	}
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		if at := p.interpreter(head); at != "" {
			p.hint(at)
			p.needs(at, depth+1)
		}
		p.folderOf(real)
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		p.loader(real)
		p.prefix(real)
	}
}

// interpreter is the path of what a script says that it is run by.
func (p *planner) interpreter(head []byte) string {
	line, _, _ := bytes.Cut(head[2:], []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) == 0 || !path.IsAbs(fields[0]) {
		return ""
	}
	if path.Base(fields[0]) != "env" {
		return fields[0]
	}
	p.hint(fields[0])
	for _, f := range fields[1:] {
		if strings.HasPrefix(f, "-") || strings.Contains(f, "=") {
			continue
		}
		if path.IsAbs(f) {
			return f
		}
		return p.host.find(f, lookup(p.w.Env, "PATH"))
	}
	return ""
}

// find looks a program up.
func (h host) find(name, dirs string) string {
	if dirs == "" {
		dirs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	for _, dir := range strings.Split(dirs, ":") {
		if !path.IsAbs(dir) {
			continue
		}
		at := path.Join(dir, name)
		if _, info, err := h.stat(at); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return at
		}
	}
	return ""
}

// loader asks for what a binary says that it needs: what loads it, and the
// folders of its own in which it looks for libraries.
func (p *planner) loader(real string) {
	f, err := os.Open(p.host.at(real))
	if err != nil {
		return
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		return
	}
	for _, prog := range e.Progs {
		if prog.Type != elf.PT_INTERP || prog.Filesz > maxPath {
			continue
		}
		if b, err := readAll(prog.Open(), maxPath); err == nil {
			if at := strings.TrimRight(string(b), "\x00"); path.IsAbs(at) {
				p.hint(at)
				p.store(at)
				p.stamps = append(p.stamps, at)
			}
		}
	}
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		list, _ := e.DynString(tag)
		for _, dir := range strings.Split(strings.Join(list, ":"), ":") {
			dir = strings.NewReplacer("$ORIGIN", path.Dir(real), "${ORIGIN}", path.Dir(real)).Replace(dir)
			if path.IsAbs(dir) && !p.broad(path.Clean(dir)) {
				p.hint(path.Clean(dir))
				p.store(dir)
			}
		}
	}
}

// stores are where package managers keep everything, and programs load from all
// over them.
var stores = []string{"/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"}

func (p *planner) store(at string) {
	for _, dir := range stores {
		if within(dir, at) {
			p.hint(dir)
		}
	}
}

var ofPrefix = regexp.MustCompile(`^(lib|lib64|libexec|share|include|jre|conf|legal)$`)

// prefix asks for the folder that a program is installed in: bin/ is beside lib/ there.
// Where that folder is shared, only a library of its own is asked for.
func (p *planner) prefix(real string) {
	bin := path.Dir(real)
	dir := path.Dir(bin)
	if path.Base(bin) != "bin" && path.Base(bin) != "sbin" {
		return
	}
	if p.broad(dir) {
		if m := python.FindString(path.Base(real)); m != "" {
			p.hint(path.Join(dir, "lib", m), path.Join(dir, "lib64", m))
		}
		if path.Base(real) == "node" {
			p.hint(path.Join(dir, "lib/node_modules"))
		}
		return
	}
	list, err := p.host.readDir(dir, maxEntries)
	if err == nil && slices.ContainsFunc(list, func(e os.DirEntry) bool { return ofPrefix.MatchString(e.Name()) }) {
		p.hint(dir)
	}
}

var python = regexp.MustCompile(`^(python|pypy)[0-9.]+`)

// lookup is the value of a variable: of several the last.
func lookup(env []string, name string) string {
	for _, v := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}
