package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// show makes a path of the host visible under its own name: what it really is,
// and every link that leads to it.
func (p *planner) show(w wish) error {
	err := p.tryShow(w)
	if err == nil || w.hint && (errors.Is(err, errHint) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
		return nil
	}
	if p.w.Running != nil {
		p.leaveOut(w, err)
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %s is not there; create it, or remove it from the server's config", w.what, w.path)
	}
	return fmt.Errorf("%s: %s: %w", w.what, w.path, err)
}

func (p *planner) tryShow(w wish) error {
	real, links, err := p.host.real(w.path)
	if err != nil {
		return err
	}
	info, err := p.host.lstat(real)
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return p.not(w, "it is neither a file nor a directory; name one, or remove it")
	}
	if real == "/" {
		return p.not(w, "it is the whole host; write root: host for that")
	}
	if s := p.denied(real, w.own); s != nil {
		return p.not(w, s.why(real))
	}
	to := real
	if p.w.Mode == Dir {
		// The root has links of its own: the given path is what counts.
		if to, err = p.tree.resolve(w.path); err != nil {
			return err
		}
		links = nil
	}
	p.links = append(p.links, links...)
	if w.write {
		p.toWritable = append(p.toWritable, links...)
	}
	s, err := p.tree.look(to)
	if err != nil {
		return err
	}
	// What lies in something that will be masked needs a part of its own, which is
	// kept when that is.
	if s.source == real && !s.missing() && (s.write || !w.write) && (w.hint || !p.inSecret(real)) {
		return nil
	}
	return p.tree.set(to, &node{kind: isBind, source: real, folder: info.IsDir(), write: w.write})
}

// not refuses a wish.
func (p *planner) not(w wish, why string) error {
	if w.hint {
		return errHint
	}
	return errors.New(why)
}

// showLinks puts the links of the host that lead to parts where they are there,
// unless they are to be seen: after all parts, since most are in one.
func (p *planner) showLinks() error {
	for _, l := range p.links {
		s, err := p.tree.look(l.at)
		if err == nil && s.missing() {
			err = p.tree.set(l.at, &node{kind: isLink, text: l.text})
		}
		if err != nil {
			return fmt.Errorf("show the link %s: %w", l.at, err)
		}
	}
	return nil
}

// denied finds what forbids to show a path by name.
func (p *planner) denied(real string, own bool) *secret {
	for i, s := range p.secrets {
		if own && (s.hidden || p.aroundHidden(s.real)) {
			continue
		}
		if s.deny && within(s.real, real) || s.whole && s.real == real {
			return &p.secrets[i]
		}
	}
	return nil
}

// aroundHidden reports whether a place is the state folder, in it or above it, as the
// usual one is a place of keys too.
func (p *planner) aroundHidden(real string) bool {
	return slices.ContainsFunc(p.secrets, func(s secret) bool { return s.hidden && (within(s.real, real) || within(real, s.real)) })
}

func (p *planner) inSecret(real string) bool {
	return slices.ContainsFunc(p.secrets, func(s secret) bool { return s.real != real && within(s.real, real) })
}

// everybodys are directories that hold more than one program's things.
var everybodys = []string{
	"/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/var/lib", "/srv", "/mnt", "/media", "/usr", "/usr/local", "/opt", "/etc",
	"/run", "/dev", "/proc", "/sys", "/bin", "/sbin", "/lib", "/usr/bin", "/usr/lib", "/usr/share", "/usr/local/bin", "/usr/local/lib", "/Users",
}

// ofHomes are such directories of a home.
var ofHomes = []string{"", "bin", ".local", ".local/bin", ".local/lib", ".local/share", ".config", ".cache", "Desktop", "Documents", "Downloads", "go", "go/bin", "snap"}

// broad reports whether a directory holds more than what a program needs, so that
// it is not shown because something in it is.
func (p *planner) broad(dir string) bool {
	if slices.Contains(everybodys, dir) {
		return true
	}
	for _, home := range p.w.Homes {
		if within(dir, home) || slices.ContainsFunc(ofHomes, func(name string) bool { return dir == path.Join(home, name) }) {
			return true
		}
	}
	return slices.ContainsFunc(p.w.Hide, func(hide string) bool { return within(dir, hide) })
}

// hint asks for something that a program may need.
func (p *planner) hint(paths ...string) {
	for _, at := range paths {
		p.wishes = append(p.wishes, wish{path: at, hint: true, what: "what the program needs"})
	}
}
