package layout

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config/keyplaces"
)

// A secret is a path of the host that must not be seen.
type secret struct {
	path   string
	real   string // as far as it is there, all links followed
	gone   bool   // it is not there
	deny   bool   // nor may anything in it be shown by name
	whole  bool   // of a home: itself may not be shown, but what is in it
	hidden bool   // Tine's own
	what   string
}

// why says that something in it can't be shown.
func (s *secret) why(real string) string {
	switch {
	case s.hidden:
		return "it is in Tine's own folder, which no sandbox sees; move it elsewhere"
	case s.whole:
		return "it is a home; name what is needed in it"
	case s.what == "config":
		return "it is the gateway's config, or a file that this names, which no sandbox sees; remove it, or put what the server needs into another file"
	case s.what == "deny_read":
		return fmt.Sprintf("deny_read has %s; remove one of them", s.path)
	case s.what == "kernel":
		return "it belongs to the kernel, and a sandbox has its own; remove it"
	}
	if s.real == real {
		return "it holds secrets, which no sandbox sees; remove it"
	}
	return fmt.Sprintf("it is in %s, which holds secrets that no sandbox sees; move it elsewhere, or remove it", s.path)
}

// findSecrets lists what must not be seen.
func (p *planner) findSecrets() []secret {
	var all []secret
	add := func(s secret) {
		if s, ok := p.locate(s); ok {
			all = append(all, s)
		}
	}
	for _, at := range p.w.Hide {
		add(secret{path: at, deny: true, hidden: true, what: "hidden"})
	}
	for _, at := range p.w.Private {
		for _, place := range p.linksTo(at) {
			all = append(all, secret{path: at, real: place, what: "config"})
		}
		add(secret{path: at, deny: true, what: "config"})
	}
	for _, at := range p.w.DenyRead {
		add(secret{path: at, deny: true, what: "deny_read"})
	}
	for i, home := range p.w.Homes {
		real, _, err := p.host.real(home)
		for _, name := range keyplaces.OfHome() {
			if i == 0 {
				p.globbed(path.Join(home, name))
			}
			for _, at := range p.glob(home, name) {
				s := secret{path: at, deny: true, what: "home"}
				if err == nil && real == home && p.absent(home, at) {
					s.real, s.gone = at, true
					all = append(all, s)
					continue
				}
				add(s)
			}
		}
		for _, name := range keyplaces.OfStart() {
			at := path.Join(home, name)
			if add(secret{path: at, what: "env"}); i == 0 {
				p.noteAbsent(at)
			}
		}
		if i > 0 {
			add(secret{path: home, whole: true, what: "home"})
		} else if p.shows(home) {
			for _, at := range p.projectKeys(home) {
				add(secret{path: at, what: "env"})
			}
		}
	}
	for _, pattern := range keyplaces.OfSystem() {
		p.globbed(pattern)
		for _, at := range p.glob("", pattern) {
			add(secret{path: at, deny: strings.HasPrefix(at, "/etc/"), what: "system"})
		}
	}
	for _, at := range kernelMounts(p.mounts) {
		add(secret{path: at, deny: true, what: "kernel"})
	}
	for _, at := range []string{"/proc", "/sys", "/dev"} {
		add(secret{path: at, deny: true, what: "kernel"})
	}
	return p.hiddenBefore(all)
}

// linksTo are the places of links that stand for a file: an editor may put the file
// itself there.
func (p *planner) linksTo(at string) []string {
	var places []string
	_, links, _ := p.host.real(at)
	for _, l := range links {
		if p.host.isFile(l.at) {
			places = append(places, l.at)
		}
	}
	return places
}

// locate finds where a secret really is.
func (p *planner) locate(s secret) (secret, bool) {
	real, rest, links, err := p.host.follow(s.path)
	s.real = real
	if s.deny && s.what != "kernel" && s.what != "system" {
		p.toSecrets = append(p.toSecrets, links...)
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission):
		// This process may not look into the directory that it came to: that is covered.
		s.deny = false
	case s.whole || s.what == "system" || s.what == "kernel" || s.what == "env" || slices.Contains(rest, ".."):
		return s, false
	default:
		// What is not there yet may come: its place must not be seen.
		s.real, s.gone = path.Join(real, path.Join(rest...)), true
	}
	return s, s.real != "/"
}

// glob are the paths of the host that a place of keys below top stands for.
func (p *planner) glob(top, place string) []string {
	dir, name := path.Split(path.Join(top, place))
	if !strings.ContainsAny(name, "*?[") {
		return []string{dir + name}
	}
	dir = path.Clean(dir)
	var all []string
	for entry := range p.list(dir) {
		if keyplaces.Is(place, entry) {
			all = append(all, path.Join(dir, entry))
		}
	}
	slices.Sort(all)
	return all
}

// maxListed bounds the entries of a directory in which places of keys are looked for.
const maxListed = 10_000

// list is what a directory has, by name. It is read once, as many places are looked for
// in few directories; nil where it can't be read.
func (p *planner) list(dir string) map[string]fs.FileMode {
	names, known := p.lists[dir]
	if known {
		return names
	}
	if p.listed == nil {
		p.listed = map[string]int64{}
	}
	p.listed[dir] = p.host.changed(dir)
	if list, err := p.host.readDir(dir, maxListed); err == nil {
		names = make(map[string]fs.FileMode, len(list))
		for _, e := range list {
			names[e.Name()] = e.Type()
		}
	}
	if p.lists == nil {
		p.lists = map[string]map[string]fs.FileMode{}
	}
	p.lists[dir] = names
	return names
}

// absent reports whether it is certain that nothing is at a path below a home whose own
// path is real: that a directory on the way, which no link leads to, lacks the next name.
func (p *planner) absent(home, at string) bool {
	dir := home
	for _, name := range names(strings.TrimPrefix(at, home)) {
		list := p.list(dir)
		if list == nil {
			return false
		}
		kind, there := list[name]
		if !there {
			return true
		}
		if !kind.IsDir() {
			return false
		}
		dir = path.Join(dir, name)
	}
	return false
}

// masks finds the places of the root at which something secret is seen.
func (p *planner) masks() ([]string, error) {
	var masks []string
	// What is there goes first, and the outer of two: a mask covers what is in it.
	secrets := slices.Clone(p.secrets)
	slices.SortStableFunc(secrets, func(a, b secret) int {
		if a.gone != b.gone {
			return cmp.Compare(gone(a), gone(b))
		}
		return strings.Compare(a.real, b.real)
	})
	for _, s := range secrets {
		if p.named(s) {
			continue
		}
		places := []string{s.real}
		if !s.gone {
			places = append(places, aliases(p.host, p.mounts, s)...)
		}
		for _, real := range places {
			found, err := p.mask(s, real, masks)
			if err != nil {
				return nil, fmt.Errorf("hide %s: %w", s.path, err)
			}
			masks = append(masks, found...)
		}
	}
	slices.Sort(masks)
	masks = slices.Compact(masks)
	return slices.DeleteFunc(masks, func(m string) bool {
		return slices.ContainsFunc(masks, func(outer string) bool { return outer != m && outer != "" && within(outer, m) })
	}), nil
}

// named reports whether something that is private to the host, and no more, was
// asked for by its name. A file with variables is a program's own where its folder is.
func (p *planner) named(s secret) bool {
	if s.what != "env" && (s.what != "system" || s.deny) {
		return false
	}
	return slices.ContainsFunc(p.wishes, func(w wish) bool {
		real, _, err := p.host.real(w.path)
		switch {
		case err != nil:
			return false
		case w.kept:
			return false
		case s.what == "env" && w.hint:
			return within(real, s.real) && within(p.w.Homes[0], real) && real != p.w.Homes[0]
		}
		return !w.hint && real == s.real
	})
}

func gone(s secret) int {
	if s.gone {
		return 1
	}
	return 0
}

// mask finds where one path of the host is seen beside where masks are. A place
// that other parts lie in is left out of the root instead, since a mask would
// cover them too.
func (p *planner) mask(s secret, real string, masked []string) ([]string, error) {
	var masks []string
	for _, b := range p.binds() {
		at, want := b.path, b.node.source
		switch {
		case within(b.node.source, real):
			at, want = below(b.path, b.node.source, real), real
		case b.node.from != "" && within(b.node.from, real) && within(real, b.node.source):
			// It was split, and this is a piece of it.
		default:
			continue
		}
		if slices.ContainsFunc(masked, func(m string) bool { return within(m, at) }) {
			continue
		}
		is, err := p.tree.look(at)
		if err != nil {
			return nil, err
		}
		switch {
		case is.missing(): // or the host has taken it away since the secrets were found
			if err := p.keepOut(s, b, at); err != nil {
				return nil, err
			}
		case is.source != want:
			// Another part is in front of it.
		case is.node != nil && len(is.node.kids) > 0:
			if err := p.tree.set(at, &node{mode: 0o711}); err != nil {
				return nil, err
			}
		default:
			if err := p.cover(s, b, at, is); err != nil {
				return nil, err
			}
			masks = append(masks, at)
		}
	}
	return masks, nil
}

// cover puts something of our own at a place that is masked, where the host may
// replace what is there: the kernel takes a mask away together with the file below
// it, and then the next file would be seen.
func (p *planner) cover(s secret, b place, at string, is spot) error {
	if b.node.write && s.replaceable() && s.what != "deny_read" && s.what != "env" {
		return inWritable(s, b)
	}
	if b.node.write || !s.replaceable() || s.what == "env" && !p.worthSplitting(at) {
		return nil
	}
	n := &node{kind: isText}
	if is.dir() {
		n = &node{mode: 0o711}
	}
	err := p.tree.set(at, n)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil // this process may not list the folder that it is in
	case errors.Is(err, errMany):
		return fmt.Errorf("its folder has more than %d entries, too many to hide one of them; move it into a folder of its own", maxEntries)
	}
	return err
}

// replaceable reports whether the host may put another file in the place of a secret.
func (s *secret) replaceable() bool {
	return !s.whole && slices.Contains([]string{"home", "deny_read", "env", "config"}, s.what)
}

// inWritable says that something can't be hidden for good in what may be written to:
// a new one in its place would be seen.
func inWritable(s secret, b place) error {
	if s.what == "config" {
		return fmt.Errorf("it is the gateway's config, or a file that this names, and lies in %s, which may be written to; name a folder below that does not hold it, or move the file elsewhere", b.node.source)
	}
	return fmt.Errorf("it is for keys, which no sandbox sees, and lies in %s, which may be written to; name the folders beside it instead", b.node.source)
}

// keepOut makes sure that what is not there can't appear in the root later.
func (p *planner) keepOut(s secret, b place, at string) error {
	parent := path.Dir(at)
	for {
		is, err := p.tree.look(parent)
		if err != nil {
			return err
		}
		if !is.missing() {
			if is.source == "" || !is.dir() || !within(b.path, parent) {
				return nil // not through this part
			}
			break
		}
		parent = path.Dir(parent)
	}
	if s.what == "env" && !p.worthSplitting(at) {
		return nil
	}
	if b.node.write {
		if s.what == "home" && !s.whole || s.what == "config" {
			return inWritable(s, b)
		}
		return fmt.Errorf("it is not there and could appear in %s, which may be written to; create it first, or remove it", b.node.source)
	}
	return p.tree.split(parent)
}

// binds are the parts that show something of the host.
func (p *planner) binds() []place {
	if p.tree.changed || p.bound == nil {
		p.bound, p.tree.changed = nil, false
		p.tree.walk(func(at string, n *node) {
			if n.kind == isBind {
				p.bound = append(p.bound, place{at, n})
			}
		})
	}
	return p.bound
}
