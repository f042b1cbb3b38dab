// Package layout says which parts of the host a program in a sandbox sees, and which of
// what is below them is masked. It reads the filesystem and changes nothing; the helper
// makes the root.
//
// A root is a tree of parts. By default it is an allow list: the system's
// programs and libraries, of /etc what programs need, the program with what its
// interpreter needs, and the folder that it is in. Everything keeps the path that
// it has on the host, and every link on the way to it is there as a link, so that
// a program finds what it would find outside.
//
//	real paths   a Source never has a link on its way, nor has a Path in the root
//	nesting      a part may lie in another where the place is there already; where
//	             it is not, the outer one is split into its entries
//	masks        are made for what is seen through a part under whatever name:
//	             links are followed, and other mounts of the same files are found
//
// What can't be found is a hard link to one file of a masked folder that lies in
// a part: it is the same file, and not below anything that is masked.
package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// Mode is what a root is made of.
type Mode string

// The modes.
const (
	Allow Mode = "allow" // what a program needs of the host
	Host  Mode = "host"  // the host but what is private
	Dir   Mode = "dir"   // another directory
)

// Where things are inside.
const (
	Home      = "/home/user"
	Workspace = "/workspace"
	State     = "/state"
)

// maxBytes bounds a layout as it is sent to the helper that makes the root: some
// thousand parts, each of which is a mount.
const maxBytes = 1 << 20

// Wanted is what a root is for. All paths are absolute.
type Wanted struct {
	Mode Mode // default Allow
	// Workspace is where the session's directory is seen; default Workspace.
	Workspace string
	Dir       string // the root directory of mode Dir
	Image     string // the digest of the image that was unpacked there, where it is one

	Command string   // a path: of the host, in mode Dir of the root
	Args    []string // of the command: an interpreter's script is looked for in them
	Env     []string // of the command: where a script's interpreter is looked for
	Cwd     string   // where it runs; a path as Command is

	AllowRead  []string // more of the host
	AllowWrite []string // and what may be written to
	DenyRead   []string // what must not be seen
	Hide       []string // what must never be seen: the state folder
	Private    []string // nor these, files of the gateway's config
	Reads      []string // what packages need; these may lie below Hide
	// Moves are folders that are seen elsewhere than where they are, by where they
	// are seen. All other paths are those that are seen. What is in such a folder is
	// identified by its name: it does not change.
	Moves map[string]string
	// Homes are the homes on this host, as Homes finds them. The first is that of
	// the gateway's user: of it what is secret is masked, of others all.
	Homes []string

	UID, GID int
	Hostname string // default sandbox
	Network  bool   // names are looked up as on the host

	Sums *Sums `json:"-"` // of files that were read before; nil for none

	// Running is the layout that a sandbox which runs was started with; nil for one
	// that starts. See running.go.
	Running *Layout `json:"-"`
	// Before is the layout that its root has; nil for one that starts.
	Before *Layout `json:"-"`

	host host // in tests another one
}

// Layout is how to make a root.
type Layout struct {
	Parts []control.Part // parents before what is in them
	Masks []string       // paths in the root that must be covered
	// Digest changes with what a memory that was made on the root needs to go on:
	// with what was asked for, and when programs of the host change. Stamp is what an
	// earlier version compared, by size and time of all files.
	Digest, Stamp string
	// Needs is what the digest is of, by path, so that an error can name what changed.
	Needs map[string]string

	// Missing are paths that were asked for and are not shown. Refused has the reasons
	// for those that exist. Both are empty for a sandbox that starts.
	Missing []string
	Refused []error

	host     host
	hidden   []string
	listings []listing
	links    []link   // on the way to what is shown, and to what is hidden
	secrets  []secret // what is hidden
	searched *searched
	start    start
}

// Plan says how a root has to be made.
func Plan(w Wanted) (*Layout, error) {
	p, err := newPlanner(w)
	if err != nil {
		return nil, err
	}
	if err := p.base(); err != nil {
		return nil, err
	}
	if p.w.Mode != Dir {
		if err := p.program(); err != nil {
			return nil, err
		}
	}
	p.given()
	if err := p.showAll(); err != nil {
		return nil, err
	}
	if err := p.cwd(); err != nil {
		return nil, err
	}
	if err := p.showLinks(); err != nil {
		return nil, err
	}
	if err := p.pin(); err != nil {
		return nil, err
	}
	if err := p.there(); err != nil {
		return nil, err
	}
	p.noteGlobs()
	begun := p.begun()
	masks, err := p.masks()
	if err != nil {
		return nil, err
	}
	if err := p.seen(masks); err != nil {
		return nil, err
	}
	l := &Layout{
		Parts: p.tree.parts(), Masks: masks, Missing: p.missing, Refused: p.refused,
		host: p.host, hidden: p.tree.hidden, listings: p.tree.listings, links: p.followed(), secrets: p.secrets, searched: p.searched, start: begun,
	}
	b, err := json.Marshal(control.Root{Parts: l.Parts, Masks: l.Masks})
	if err != nil {
		return nil, err
	}
	if len(b) > maxBytes {
		return nil, fmt.Errorf("the root of the sandbox has too many parts (%d, and %d masks); allow or deny whole folders instead of many things in them", len(l.Parts), len(l.Masks))
	}
	if w.Running == nil {
		p.digest(l)
	}
	return l, nil
}

// A planner makes one layout.
type planner struct {
	w       Wanted
	host    host
	tree    *tree
	secrets []secret
	mounts  []mount
	wishes  []wish
	lists   map[string]map[string]fs.FileMode // what directories have, by path
	listed  map[string]int64                  // and when they had changed, by then
	globs   map[string][]string               // patterns of names that were looked for in them
	// projectParts counts what folders were split into for files of projects.
	projectParts int
	bound        []place // what binds returned last
	links        []link  // that lead to what is shown
	toSecrets    []link  // that lead to what is hidden
	toWritable   []link  // that lead to what may be written to
	searched     *searched
	missing      []string // of a sandbox that runs: see Layout
	refused      []error
	must         []string // what may not be masked: the command, and its script
	stamps       []string // files that count for the digest
}

// A wish is a path of the host that must be seen.
type wish struct {
	path  string
	write bool
	hint  bool   // only where it exists and may be seen; not asked for by name
	own   bool   // may lie below Hide
	kept  bool   // of a sandbox that runs: it was shown when that started
	what  string // for errors
}

func newPlanner(w Wanted) (*planner, error) {
	if w.Mode == "" {
		w.Mode = Allow
	}
	if w.Hostname == "" {
		w.Hostname = "sandbox"
	}
	if !slices.Contains([]Mode{Allow, Host, Dir}, w.Mode) {
		return nil, fmt.Errorf("there is no root %q; use allow, host, or the path of a directory or an image", w.Mode)
	}
	p := &planner{w: w, host: w.host, searched: new(searched)}
	p.host.moves = w.Moves
	p.tree = newTree(p.host)
	for _, list := range []struct {
		what  string
		paths []string
	}{
		{"command", []string{w.Command}}, {"allow_read", w.AllowRead}, {"allow_write", w.AllowWrite},
		{"deny_read", w.DenyRead}, {"what is hidden", w.Hide}, {"what is the gateway's", w.Private}, {"what packages need", w.Reads}, {"a home", w.Homes},
	} {
		for _, at := range list.paths {
			if err := check(list.what, at); err != nil {
				return nil, err
			}
		}
	}
	if w.Cwd != "" {
		if err := check("cwd", w.Cwd); err != nil {
			return nil, err
		}
	}
	var err error
	if p.mounts, err = readMounts(p.host); err != nil {
		return nil, err
	}
	p.secrets = p.findSecrets()
	p.tree.hidden = hiddenPaths(p.secrets)
	return p, nil
}

func check(what, at string) error {
	switch {
	case !strings.HasPrefix(at, "/"):
		return fmt.Errorf("%s: %q is not a whole path; begin it with /", what, at)
	case len(at) > maxPath:
		return fmt.Errorf("%s: %.40q... is longer than %d bytes", what, at, maxPath)
	case strings.ContainsRune(at, 0):
		return fmt.Errorf("%s: %q is not a path", what, at)
	}
	return nil
}

// given adds what the config names.
func (p *planner) given() {
	for _, at := range p.w.Reads {
		p.wishes = append(p.wishes, wish{path: at, own: true, what: "what its packages need"})
	}
	for _, at := range p.w.AllowRead {
		p.wishes = append(p.wishes, wish{path: at, what: "allow_read"})
	}
	if p.w.Running != nil {
		p.keep()
		return
	}
	for _, at := range p.w.AllowWrite {
		p.wishes = append(p.wishes, wish{path: at, write: true, what: "allow_write"})
	}
}

// cwd makes sure that the program can run where it shall. A home or a shared directory
// is not shown for that.
func (p *planner) cwd() error {
	if p.w.Cwd == "" {
		return nil
	}
	if p.w.Mode != Dir {
		real, info, err := p.host.stat(p.w.Cwd)
		switch {
		case err != nil && p.inside(p.w.Cwd):
			return nil
		case p.w.Running != nil && (err != nil || !info.IsDir()):
			p.missing = append(p.missing, p.w.Cwd)
			return nil
		case err != nil:
			return fmt.Errorf("cwd %s can't be looked at: %w; create it, or mend the server's cwd", p.w.Cwd, err)
		case !info.IsDir():
			return fmt.Errorf("cwd %s is not a directory; mend the server's cwd", p.w.Cwd)
		case !p.broad(real):
			return p.show(wish{path: p.w.Cwd, own: p.ofPackages(real), what: "cwd"})
		}
	}
	if err := p.tree.ensure(p.w.Cwd, 0o755); err != nil {
		return fmt.Errorf("cwd %s: %w; mend the server's cwd", p.w.Cwd, err)
	}
	return nil
}

// inside reports whether the root has a directory of its own at a path.
func (p *planner) inside(at string) bool {
	at, err := p.tree.resolve(at)
	if err != nil {
		return false
	}
	s, err := p.tree.look(at)
	return err == nil && s.dir()
}

// there makes sure that the command can be run.
func (p *planner) there() error {
	if p.w.Running != nil {
		return nil
	}
	at, err := p.tree.resolve(p.w.Command)
	if err == nil {
		var s spot
		if s, err = p.tree.look(at); err == nil && s.file() {
			return nil
		}
	}
	if p.w.Mode == Dir {
		return fmt.Errorf("command %s is not in the root %s; give a path that is in it, or use another root", p.w.Command, p.rootName())
	}
	return fmt.Errorf("command %s is not a file; mend the server's command", p.w.Command)
}

// seen makes sure that no mask covers what is to be run.
func (p *planner) seen(masks []string) error {
	if p.w.Running != nil {
		return nil
	}
	for _, at := range append([]string{p.w.Command}, p.must...) {
		to, err := p.tree.resolve(at)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(masks, func(m string) bool { return within(m, to) }); i >= 0 {
			return fmt.Errorf("%s can't be run: it is in %s, which no sandbox sees; move it elsewhere", at, masks[i])
		}
	}
	return nil
}

func (p *planner) rootName() string {
	if p.w.Image != "" {
		return "of the image"
	}
	return p.w.Dir
}

// showAll puts the wishes into the tree, parents first.
func (p *planner) showAll() error {
	key := map[string]string{}
	for _, w := range p.wishes {
		key[w.path] = path.Clean(w.path)
		if real, _, err := p.host.real(w.path); err == nil && p.w.Mode != Dir {
			key[w.path] = real
		}
	}
	slices.SortStableFunc(p.wishes, func(a, b wish) int { return strings.Compare(key[a.path], key[b.path]) })
	for _, w := range p.wishes {
		if err := p.show(w); err != nil {
			return err
		}
	}
	return nil
}

// errHint says that something that would have been good to have can't be shown.
var errHint = errors.New("not shown")
