package layout

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// A listing is a folder that the root shows entry by entry, and what was in it.
type listing struct {
	dir     string
	entries string
	changed int64 // when the folder was, in nanoseconds; 0 where that tells nothing
}

// Stale reports whether a root of this layout would be out of date: it has Changed, a
// part is gone, a link leads elsewhere, or there are other keys. A part that the host
// replaced by another file makes no difference to the layout.
func (l *Layout) Stale() bool {
	if l.Changed() {
		return true
	}
	for _, was := range l.links {
		if text, err := l.host.readlink(was.at); err != nil || text != was.text {
			return true
		}
	}
	for _, part := range l.Parts {
		if part.Source == "" {
			continue
		}
		if _, err := l.outside().lstat(part.Source); err != nil {
			return true
		}
	}
	return l.searched.differ(l.host)
}

// Listed are the folders that are shown entry by entry.
func (l *Layout) Listed() []string {
	var all []string
	for _, was := range l.listings {
		all = append(all, was.dir)
	}
	return all
}

// Links are the links of the host on the way to what is shown and to what is hidden.
func (l *Layout) Links() []string {
	var all []string
	for _, link := range l.links {
		if !l.host.moved(link.at) {
			all = append(all, link.at)
		}
	}
	return all
}

// Changed reports whether an entry of a folder that is shown entry by entry came or
// went, or became something else, or such a folder got another mode or
// owner.
func (l *Layout) Changed() bool {
	return !l.Untouched() && !l.Lists(l.AsNow())
}

// Untouched reports that no entry of such a folder came, went or was replaced. It is not
// certain shortly after one was.
func (l *Layout) Untouched() bool {
	return !slices.ContainsFunc(l.listings, func(was listing) bool {
		return was.changed == 0 || was.changed != l.host.changed(was.dir)
	})
}

// Lists reports whether another layout has the same entries.
func (l *Layout) Lists(other *Layout) bool {
	return slices.EqualFunc(l.listings, other.listings, func(a, b listing) bool { return a.dir == b.dir && a.entries == b.entries })
}

// AsNow is the layout with the entries that its folders have now: it has not Changed.
func (l *Layout) AsNow() *Layout {
	now := *l
	now.listings = nil
	for _, was := range l.listings {
		now.listings = append(now.listings, l.list(was.dir))
	}
	return &now
}

func (l *Layout) list(dir string) listing {
	changed := l.host.changed(dir)
	list, err := l.host.readDir(dir, maxEntries)
	if err != nil {
		return listing{dir: dir, entries: err.Error()}
	}
	return l.host.listing(dir, changed, list, l.hidden)
}

// changed is when a folder was; 0 where that is not known, or so lately that it may
// be again at the same time.
func (h host) changed(dir string) int64 {
	at, ok := changedAt(h.at(dir))
	if !ok {
		return 0
	}
	return settledAt(at)
}

func settledAt(at time.Time) int64 {
	if at.IsZero() || time.Since(at) < settled {
		return 0
	}
	return at.UnixNano()
}

// outside is the host without moves: a part names its source as it is there.
func (l *Layout) outside() host { return host{root: l.host.root} }

// listing has the mode and the owner of a folder, the names in it and what they are, without what is
// hidden: that is not shown, whatever becomes of it.
func (h host) listing(dir string, changed int64, list []fs.DirEntry, hidden []string) listing {
	var all strings.Builder
	if info, err := h.lstat(dir); err == nil {
		uid, gid := ownerOf(info)
		fmt.Fprintf(&all, "%o %d %d\n", openedMode(info), uid, gid)
	}
	for _, e := range list {
		at := path.Join(dir, e.Name())
		if _, found := slices.BinarySearch(hidden, at); found {
			continue
		}
		text := ""
		if e.Type()&fs.ModeSymlink != 0 {
			text, _ = h.readlink(at)
		}
		fmt.Fprintf(&all, "%q %d %q\n", e.Name(), e.Type(), text)
	}
	return listing{dir, all.String(), changed}
}

// hiddenPaths are what secrets hide, sorted.
func hiddenPaths(secrets []secret) []string {
	var all []string
	for _, s := range secrets {
		all = append(all, s.real)
	}
	slices.Sort(all)
	return all
}
