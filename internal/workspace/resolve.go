package workspace

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// A ground is what names are resolved on: directories of type D. A tree and a
// folder share the resolving, so that a name means the same on both.
type ground[D any] interface {
	// roots are the absolute paths by which a link's target may name the root.
	roots() []string
	top() (D, error)
	// look tells what is at one element of a directory, links unresolved.
	look(d D, element string) (Info, error)
	// enter goes one directory down and leaves d; when it fails it returns d,
	// which is still to be left.
	enter(d D, element string) (D, error)
	leave(d D)
}

// A spot is where a name leads: an element of a directory, which may be missing.
// The root is "." in itself. The caller leaves its dir.
type spot[D any] struct {
	dir    D
	trail  []string // the directories that lead to dir, none of them a link
	base   string
	info   Info // what is there
	found  bool
	linked bool // the last element was a link, or several
}

func (s spot[D]) isRoot() bool { return s.base == "." }

// path is the resolved name.
func (s spot[D]) path() string { return path.Join(path.Join(s.trail...), s.base) }

// resolve follows a name, and the links on its way. The last element may be
// missing; where it is a link, follow says whether it is followed too.
func resolve[D any](g ground[D], name string, follow bool) (spot[D], error) {
	rest, err := elements(name)
	if err != nil {
		return spot[D]{}, err
	}
	d, err := g.top()
	if err != nil {
		return spot[D]{}, err
	}
	w := walk[D]{g: g, dir: d}
	s, err := w.run(rest, follow)
	if err != nil {
		g.leave(w.dir)
		return spot[D]{}, err
	}
	return s, nil
}

// A walk resolves one name. Its dir is always one to leave.
type walk[D any] struct {
	g     ground[D]
	dir   D
	trail []string
	links int
}

func (w *walk[D]) run(rest []string, follow bool) (spot[D], error) {
	linked := false
	for len(rest) > 0 {
		e := rest[0]
		rest = rest[1:]
		last := len(rest) == 0
		if e == ".." {
			if len(w.trail) == 0 {
				return spot[D]{}, ErrEscape
			}
			if err := w.restart(w.trail[:len(w.trail)-1]); err != nil {
				return spot[D]{}, err
			}
			continue
		}
		info, err := w.g.look(w.dir, e)
		switch {
		case missing(err) && last:
			return spot[D]{dir: w.dir, trail: w.trail, base: e, linked: linked}, nil
		case err != nil:
			return spot[D]{}, err
		}
		if info.Mode&fs.ModeSymlink != 0 && (!last || follow) {
			if rest, err = w.link(info.Target, rest); err != nil {
				return spot[D]{}, err
			}
			linked = linked || last
			continue
		}
		if last {
			return spot[D]{dir: w.dir, trail: w.trail, base: e, info: info, found: true, linked: linked}, nil
		}
		if !info.Mode.IsDir() {
			return spot[D]{}, syscall.ENOTDIR
		}
		if w.dir, err = w.g.enter(w.dir, e); err != nil {
			return spot[D]{}, err
		}
		w.trail = append(w.trail, e)
	}
	return w.arrived(linked)
}

// link puts a link's target before what is left of the name.
func (w *walk[D]) link(target string, rest []string) ([]string, error) {
	if w.links++; w.links > maxLinks {
		return nil, syscall.ELOOP
	}
	if strings.HasPrefix(target, "/") {
		inside, ok := below(w.g.roots(), target)
		if !ok {
			return nil, ErrEscape
		}
		if err := w.restart(nil); err != nil {
			return nil, err
		}
		target = inside
	}
	front, err := split(target)
	if err != nil {
		return nil, err
	}
	return slices.Concat(front, rest), nil
}

// restart goes to the root and down to trail.
func (w *walk[D]) restart(trail []string) error {
	d, err := w.g.top()
	if err != nil {
		return err
	}
	w.g.leave(w.dir)
	w.dir = d
	for _, e := range trail {
		if w.dir, err = w.g.enter(w.dir, e); err != nil {
			return err
		}
	}
	w.trail = slices.Clone(trail)
	return nil
}

// arrived makes a spot of the directory that the walk ended in.
func (w *walk[D]) arrived(linked bool) (spot[D], error) {
	base := "."
	if n := len(w.trail); n > 0 {
		base = w.trail[n-1]
		if err := w.restart(w.trail[:n-1]); err != nil {
			return spot[D]{}, err
		}
	}
	info, err := w.g.look(w.dir, base)
	if err != nil {
		return spot[D]{}, err
	}
	return spot[D]{dir: w.dir, trail: w.trail, base: base, info: info, found: true, linked: linked}, nil
}

// mkdirAll makes the directories of a name that are missing, each by mkdir. A
// link to nothing is not followed to where it would lead.
func mkdirAll[D any](g ground[D], name string, mkdir func(spot[D]) error) error {
	all, err := elements(name)
	if err != nil {
		return err
	}
	for i := range all {
		s, err := resolve(g, path.Join(all[:i+1]...), true)
		if err != nil {
			return err
		}
		switch {
		case s.found && !s.info.Mode.IsDir():
			err = syscall.ENOTDIR
		case !s.found && s.linked:
			err = fs.ErrExist
		case !s.found:
			err = mkdir(s)
		}
		g.leave(s.dir)
		if err != nil {
			return err
		}
	}
	return nil
}

// renamable tells whether what is at a may become b; else which name is wrong.
func renamable[D any](a, b spot[D], from, to string) (string, error) {
	switch {
	case a.isRoot():
		return from, fs.ErrInvalid
	case !a.found:
		return from, fs.ErrNotExist
	case b.found:
		return to, fs.ErrExist
	case a.info.Mode.IsDir() && strings.HasPrefix(b.path(), a.path()+"/"):
		return to, fs.ErrInvalid
	}
	return "", nil
}
