//go:build linux && (amd64 || arm64)

package sandbox

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

// looks is how the host looked when a root was planned.
type looks struct {
	layout *layout.Layout
	binds  []bound // what the root binds
	// others are the rest that the plan depends on: links, paths that were missing, and
	// the folders of allow_write.
	others []bound
}

// bound is a file, folder or link of the host.
type bound struct {
	source   string
	link     bool
	text     string // where a link leads
	dev, ino uint64
	watched  bool // looked at with every message
	entry    bool // of a folder that the layout has listed, whose time tells as well
}

// ofSystem are folders that only an installation changes. What is bound of them is
// looked at when a sandbox starts.
var ofSystem = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt"}

func systems(path string) bool {
	return slices.ContainsFunc(ofSystem, func(dir string) bool { return within(dir, path) })
}

func (p *plan) newLooks(l *layout.Layout) looks {
	k, named := looks{layout: l}, slices.ContainsFunc(p.box.AllowRead, systems)
	for _, part := range p.root.Parts {
		if part.Source != "" {
			k.binds = append(k.binds, bound{source: part.Source, watched: named || !systems(part.Source), entry: part.Of != ""}.now())
		}
	}
	for _, at := range l.Links() {
		k.others = append(k.others, bound{source: at, link: true, watched: named || !systems(at)}.now())
	}
	for _, at := range l.Missing {
		k.others = append(k.others, bound{source: at, watched: true}.now())
	}
	k.others = append(k.others, p.writable()...)
	return k
}

// writable are the folders of the host that a sandbox may write to, as its config
// names them.
func (p *plan) writable() []bound {
	var all []bound
	for _, at := range p.box.AllowWrite {
		all = append(all, bound{source: at, watched: true}.now())
	}
	return all
}

// now looks at the host again.
func (b bound) now() bound {
	var s unix.Stat_t
	b.dev, b.ino, b.text = 0, 0, ""
	if b.link {
		b.text, _ = os.Readlink(b.source)
	} else if unix.Stat(b.source, &s) == nil {
		b.dev, b.ino = uint64(s.Dev), s.Ino
	}
	return b
}

func allNow(was []bound) []bound {
	var now []bound
	for _, b := range was {
		if b.watched {
			b = b.now()
		}
		now = append(now, b)
	}
	return now
}

// untouched reports that the host has nothing else for sure.
func (k looks) untouched() bool {
	changed := func(b bound) bool { return b.watched && !b.entry && b.now() != b }
	return k.layout.Untouched() && !slices.ContainsFunc(k.binds, changed) && !slices.ContainsFunc(k.others, changed)
}

// asNow looks at the host again.
func (k looks) asNow() looks {
	now := looks{layout: k.layout.AsNow()} // first: its times are of before
	now.binds, now.others = allNow(k.binds), allNow(k.others)
	return now
}

// same reports whether looks show the same.
func (k looks) same(other looks) bool { return slices.Equal(k.binds, other.binds) && k.alike(other) }

// alike reports whether a plan for other looks would be the same: some of the files and
// folders that it binds may have others in their places.
func (k looks) alike(other looks) bool {
	kept := func(a, b bound) bool { return (a.ino == 0) == (b.ino == 0) }
	return k.layout.Lists(other.layout) && slices.Equal(k.others, other.others) && slices.EqualFunc(k.binds, other.binds, kept)
}

// content tells apart what a root shows at different times.
func (p *plan) content() string {
	var ids []uint64
	for _, b := range p.looks.binds {
		ids = append(ids, b.dev, b.ino)
	}
	return digest(p.root, ids)
}

// lasting are the parts of a root that do not come and go with the entries of a
// folder. A sandbox that starts has another root where it differs in them.
func lasting(r control.Root) []control.Part {
	return slices.DeleteFunc(slices.Clone(r.Parts), func(part control.Part) bool {
		return part.Of != "" || slices.Contains(r.Masks, part.Path)
	})
}
