package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// The root of a sandbox that runs is planned again when the host changes, with
// Wanted.Running. Such a plan differs from that of a start:
//
//   - What was asked for and is not there is left out, and named in Missing.
//   - What was shown at the start is shown for as long as it is there: the program may
//     run from a folder to which no link leads any more.
//   - Directories and files of our own stay where they are. The sandbox has mounts on
//     some of them, for what it may write to, and these mounts can't be changed.
//   - What was hidden stays so, also where it is gone or nothing names it any more.
//
// What must be hidden is found and hidden as at a start.

// start is what later plans for the same sandbox need of the first one.
type start struct {
	shown []string // folders and files of the host, by their paths in the root
	pins  []place  // directories and files of our own
	links []link   // to what may be written to
}

// begun is the start of a sandbox, before anything is masked.
func (p *planner) begun() start {
	if p.w.Running != nil {
		return p.w.Running.start
	}
	s := start{links: p.toWritable}
	p.tree.walk(func(at string, n *node) {
		switch {
		case n.kind == isBind && n.write && n.folder:
			s.pins = append(s.pins, place{at, &node{pinned: true}})
		case n.kind == isBind && n.write:
			s.pins = append(s.pins, place{at, &node{kind: isText}})
		case n.kind == isBind && n.from == "" && p.w.Mode != Dir:
			s.shown = append(s.shown, at)
		case n.kind == isText:
			s.pins = append(s.pins, place{at, &node{kind: isText, text: n.text}})
		case n.kind == isDir && n.mode != 0 && !n.opened:
			s.pins = append(s.pins, place{at, &node{mode: n.mode, pinned: true}})
		case n.kind == isDir && n.opened && n.from == "" && p.w.Mode != Dir:
			s.shown = append(s.shown, at)
		}
	})
	return s
}

// keep asks for what was shown at the start.
func (p *planner) keep() {
	for _, at := range p.w.Running.start.shown {
		p.wishes = append(p.wishes, wish{path: at, hint: true, kept: true, what: "what was shown at the start"})
	}
	p.links = append(p.links, p.w.Running.start.links...)
}

// pin puts what is our own where it was at the start.
func (p *planner) pin() error {
	if p.w.Running == nil {
		return nil
	}
	for _, pin := range p.w.Running.start.pins {
		n := *pin.node
		if s, err := p.tree.look(pin.path); err == nil && s.node != nil && s.node.kind == n.kind && s.node.text == n.text {
			s.node.pinned = n.pinned
			continue
		}
		if err := p.tree.set(pin.path, &n); err != nil {
			return fmt.Errorf("keep %s in the root: %w", pin.path, err)
		}
	}
	return nil
}

// hiddenBefore adds what was hidden and is not found any more: a link to it that leads
// elsewhere by now, or a file that is gone for a moment, makes nothing visible.
func (p *planner) hiddenBefore(secrets []secret) []secret {
	if p.w.Before == nil {
		return secrets
	}
	found := make(map[string]bool)
	for _, s := range secrets {
		found[s.real] = true
	}
	for _, s := range p.w.Before.secrets {
		if found[s.real] || !s.lasts() {
			continue
		}
		real, rest, _, err := p.host.follow(s.real)
		if s.gone = err != nil; s.gone {
			real = path.Join(real, path.Join(rest...))
		}
		if s.real = real; !found[real] {
			secrets = append(secrets, s)
		}
	}
	return secrets
}

// lasts reports whether a secret is hidden for as long as a root has sandboxes.
func (s *secret) lasts() bool { return !s.whole && s.what != "system" && s.what != "kernel" }

// Hides reports whether all that another layout hides, and that is there, is hidden by
// this one too.
func (l *Layout) Hides(other *Layout) bool {
	return !slices.ContainsFunc(other.secrets, func(s secret) bool {
		if _, found := slices.BinarySearch(l.hidden, s.real); found || !s.lasts() {
			return false
		}
		_, err := l.host.lstat(s.real)
		return err == nil
	})
}

// leaveOut notes that something is not shown to a sandbox that runs.
func (p *planner) leaveOut(w wish, err error) {
	p.missing = append(p.missing, w.path)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		p.refused = append(p.refused, fmt.Errorf("%s: %s: %w", w.what, w.path, err))
	}
}

// followed are the links on the way to what is shown and to what is hidden, each once.
func (p *planner) followed() []link {
	all := slices.Concat(p.links, p.toSecrets)
	if p.w.Running != nil {
		all = slices.DeleteFunc(all, func(l link) bool { return slices.Contains(p.w.Running.start.links, l) })
	}
	slices.SortFunc(all, func(a, b link) int { return strings.Compare(a.at, b.at) })
	return slices.CompactFunc(all, func(a, b link) bool { return a.at == b.at })
}
