package layout

import (
	"path"
	"slices"
)

// A Stamp tells whether entries of a folder were added, removed or replaced.
type Stamp struct {
	Dir  string
	Time int64 // of the last change, in nanoseconds
}

// Stale reports whether a folder of Live has changed. Its entries were listed one by
// one, so that a root made of them would show a program as it was before.
func (l *Layout) Stale() bool {
	return slices.ContainsFunc(l.Live, func(s Stamp) bool { return l.host.stamp(s.Dir) != s })
}

func (h host) stamp(dir string) Stamp {
	s := Stamp{Dir: dir}
	if info, err := h.lstat(dir); err == nil {
		s.Time = info.ModTime().UnixNano()
	}
	return s
}

// follows remembers the folders that are split because the config hides something in
// them, up to the part that shows them. They may be those of a program that is being
// worked on. Folders of everybody change all the time, and are left out.
func (p *planner) follows(s secret, b place) {
	if s.what != "config" && s.what != "deny_read" {
		return
	}
	for dir := path.Dir(s.real); !p.broad(dir); dir = path.Dir(dir) {
		if !slices.ContainsFunc(p.live, func(s Stamp) bool { return s.Dir == dir }) {
			p.live = append(p.live, p.host.stamp(dir))
		}
		if within(dir, b.node.source) {
			return
		}
	}
}
