package layout

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// searched are the places in which keys were looked for. A layout that is used again is
// out of date where they have others by now: each folder costs one look at its time,
// and is listed only where that has changed.
type searched struct {
	mu     sync.Mutex
	begun  time.Time // of the last look at all of them, which found nothing new
	all    []*searchedDir
	absent []string // places at which there was nothing
}

// searchedDir is a folder, and what of its entries decides about what is hidden.
type searchedDir struct {
	dir      string
	max      int // entries that are read
	counts   func(fs.DirEntry) bool
	decisive string
	changed  int64 // as of a listing
}

// search lists a folder in which keys are looked for, and remembers that.
func (p *planner) search(dir string, max int, counts func(fs.DirEntry) bool) ([]fs.DirEntry, error) {
	d := &searchedDir{dir: dir, max: max, counts: counts, changed: p.host.changed(dir)}
	list, err := p.host.readDir(dir, max)
	d.decisive = d.decides(list, err)
	p.searched.all = append(p.searched.all, d)
	return list, err
}

// globbed remembers that a pattern was looked for.
func (p *planner) globbed(pattern string) {
	dir, name := path.Split(pattern)
	if !strings.ContainsAny(name, "*?[") {
		return
	}
	if p.globs == nil {
		p.globs = map[string][]string{}
	}
	dir = path.Clean(dir)
	p.globs[dir] = append(p.globs[dir], name)
}

// noteGlobs notes what was found of the patterns.
func (p *planner) noteGlobs() {
	for dir, patterns := range p.globs {
		d := &searchedDir{dir: dir, max: maxListed, changed: p.listed[dir], counts: func(e fs.DirEntry) bool { return matches(patterns, e.Name()) }}
		d.decisive = unreadable
		if names := p.lists[dir]; names != nil {
			var all strings.Builder
			for _, name := range slices.Sorted(maps.Keys(names)) {
				if matches(patterns, name) {
					decide(&all, name, names[name])
				}
			}
			d.decisive = all.String()
		}
		p.searched.all = append(p.searched.all, d)
	}
}

// noteAbsent notes that there is nothing at a place of keys, where that is so.
func (p *planner) noteAbsent(at string) {
	if _, err := p.host.lstat(at); err != nil {
		p.searched.absent = append(p.searched.absent, at)
	}
}

// unreadable is what decides of a folder that can't be listed.
const unreadable = "\x00"

// decides tells apart what a listing of the folder means for what is hidden.
func (d *searchedDir) decides(list []fs.DirEntry, err error) string {
	if err != nil {
		return unreadable
	}
	var all strings.Builder
	for _, e := range list {
		if d.counts(e) {
			decide(&all, e.Name(), e.Type())
		}
	}
	return all.String()
}

func decide(to *strings.Builder, name string, kind fs.FileMode) {
	to.WriteString(name)
	to.Write([]byte{0, byte(kind >> 24)})
}

// differ reports whether there are others by now. Of several at once one looks for all.
func (s *searched) differ(h host) bool {
	came := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.After(came) {
		return false
	}
	begun := time.Now()
	if slices.ContainsFunc(s.absent, func(at string) bool { _, err := h.lstat(at); return err == nil }) {
		return true
	}
	for _, d := range s.all {
		at, there := changedAt(h.at(d.dir))
		changed := settledAt(at)
		if changed != 0 && changed == d.changed || !there && d.decisive == unreadable {
			continue
		}
		if d.decides(h.readDir(d.dir, d.max)) != d.decisive {
			return true
		}
		d.changed = changed
	}
	s.begun = begun
	return false
}
