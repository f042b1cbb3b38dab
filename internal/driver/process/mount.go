package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
)

// mount is a workspace that a child sees at another path.
type mount struct {
	self   string // the program that makes it
	how    namespaces
	source string
	point  string
}

// outside is where a path that a child sees is on the host.
func (m *mount) outside(path string) string {
	if m == nil {
		return path
	}
	if rel, err := filepath.Rel(m.point, path); err == nil && filepath.IsLocal(rel) {
		return filepath.Join(m.source, rel)
	}
	return path
}

// mountOf is the mount that a spec asks for; nil where the workspace is seen
// where it lies.
func (d *Driver) mountOf(spec driver.Spec) *mount {
	if spec.Workspace == nil || spec.Workspace.Dir() == "" || spec.WorkspacePath == "" {
		return nil
	}
	at, _ := d.Place(spec.WorkspacePath)
	if at == "" || at == spec.Workspace.Dir() {
		return nil
	}
	return &mount{self: d.opts.Self, how: d.places.how, source: spec.Workspace.Dir(), point: at}
}

// places are the paths at which workspaces are seen.
type places struct {
	self  string
	other string // Options.Place

	mu     sync.Mutex
	probed bool
	how    namespaces
	cannot error // why there are no mounts
	known  map[string]place
}

type place struct{ at, why string }

// Place implements driver.Placer. What it found out it says again until the
// gateway ends, so that all sessions have the same.
func (d *Driver) Place(path string) (at, why string) {
	p := &d.places
	p.mu.Lock()
	defer p.mu.Unlock()
	if one, ok := p.known[path]; ok {
		return one.at, one.why
	}
	one := p.find(path, mountPoint)
	if p.known == nil {
		p.known = make(map[string]place)
	}
	p.known[path] = one
	if one.at != "" {
		p.known[one.at] = place{at: one.at} // which a spec names then
	}
	return one.at, one.why
}

// WouldPlace is Place without making anything.
func (d *Driver) WouldPlace(path string) (at, why string) {
	d.places.mu.Lock()
	defer d.places.mu.Unlock()
	one := d.places.find(path, canMount)
	return one.at, one.why
}

// find finds a place, which ready says is one or why not.
func (p *places) find(path string, ready func(path string) error) place {
	if !p.probed {
		p.probed = true
		p.how, p.cannot = probe(p.self)
	}
	if p.cannot != nil {
		return place{"", p.cannot.Error()}
	}
	err := ready(path)
	if err == nil {
		return place{at: path}
	}
	if p.other == "" {
		return place{"", err.Error()}
	}
	other, absErr := filepath.Abs(p.other)
	if otherErr := errors.Join(absErr, ready(other)); otherErr != nil {
		return place{"", fmt.Sprintf("%v, and %v", err, otherErr)}
	}
	return place{other, err.Error()}
}

// mountPoint looks that there is an empty folder at a path, or makes it.
func mountPoint(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("%s is not there and can't be made: %w", path, err)
	}
	return emptyFolder(path)
}

// canMount is mountPoint without making it.
func canMount(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return emptyFolder(path)
	}
	above := filepath.Dir(path)
	for ; above != filepath.Dir(above); above = filepath.Dir(above) {
		if _, err := os.Lstat(above); err == nil {
			break
		}
	}
	if err := writable(above); err != nil {
		return fmt.Errorf("%s is not there and can't be made: %w", path, err)
	}
	return nil
}

// emptyFolder looks that there is an empty folder at a path: what is in one would
// be hidden.
func emptyFolder(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if real != filepath.Clean(path) {
		return fmt.Errorf("%s is a link to %s", path, real)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	switch _, err := f.Readdirnames(1); {
	case err == nil:
		return fmt.Errorf("%s is a folder with something in it", path)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}
