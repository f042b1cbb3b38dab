package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/workspace"
)

// templated reports whether the session has a template of its own for a server.
func (s *Session) templated(e *catalog.Entry) bool { return s.memberOptions[e.Base()].Template != nil }

// template checks what a session wants a server to begin with, and returns it as
// it is kept: a snapshot by its id, a path whole.
func (r *Registry) template(e *catalog.Entry, m catalog.Member, owner string) (json.RawMessage, error) {
	raw := m.Template
	if e.Info().Details {
		if !json.Valid(raw) {
			return nil, errors.New("its template is no JSON")
		}
		return raw, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil || text == "" {
		return nil, errors.New("its template must be a string: the name of a snapshot, or a path under template_roots")
	}
	if !e.WorksOnSpace() && !e.HasState() {
		return nil, errors.New("it remembers nothing, so it can't begin with a template")
	}
	name, explicit := strings.CutPrefix(text, catalog.FromSnapshot)
	snap := r.snapshotByID(m.Snapshot)
	if snap == nil {
		snap = r.snapshotNamed(name, owner)
		if snap != nil && snap.Owner != owner {
			snap = nil
		}
	}
	switch {
	case snap != nil:
		if !snap.has(e) {
			return nil, fmt.Errorf("snapshot %q has nothing of it", name)
		}
		return json.Marshal(catalog.FromSnapshot + snap.ID)
	case explicit:
		return nil, fmt.Errorf("there is no snapshot %s of yours", name)
	case len(e.State) > 1:
		return nil, fmt.Errorf("it has several directories of state, so a path can't tell which begins with it; give templates under servers.%s.state", e.ID)
	}
	path, err := underRoots(r.Catalog().Config.TemplateRoots, text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(path)
}

// has reports whether there is something in it that a server can begin with.
func (f *frozen) has(e *catalog.Entry) bool {
	if e.WorksOnSpace() && f.Workspace != nil {
		return true
	}
	return slices.ContainsFunc(f.Members, func(m frozenMember) bool { return m.Server == e.ID })
}

// snapshotNamed finds a snapshot by its id, or by the name its owner gave it.
func (r *Registry) snapshotNamed(name, owner string) *snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.snapshots[name]; s != nil {
		return s
	}
	for _, s := range r.snapshots {
		if s.Name == name && s.Owner == owner {
			return s
		}
	}
	return nil
}

// underRoots finds a template by its path, which must not lead out of the
// directories that templates are taken from, links or not. A path elsewhere is
// refused alike whether it exists or not.
func underRoots(roots []string, path string) (string, error) {
	if len(roots) == 0 {
		return "", fmt.Errorf("there is no snapshot %q, and no path can be a template here: set template_roots in the config", path)
	}
	inside, outside := false, false
	for _, root := range roots {
		whole, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		at := path
		if !filepath.IsAbs(at) {
			at = filepath.Join(root, at)
		}
		if !within(root, at) && !within(whole, at) {
			continue
		}
		inside = true
		real, err := filepath.EvalSymlinks(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("template %q: %w", path, reason(err))
		}
		if !within(whole, real) {
			outside = true
			continue
		}
		if info, err := os.Stat(real); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
			return "", fmt.Errorf("template %q is neither a file nor a directory", path)
		}
		return real, nil
	}
	if outside || !inside {
		return "", fmt.Errorf("template %q is not under template_roots", path)
	}
	return "", fmt.Errorf("template %q is neither a snapshot nor anything under template_roots", path)
}

// within reports whether a path is below a directory, or it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// reason is an error of the file system without the path on this machine.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// named returns, in use, the snapshot that a template of the config means; nil where that
// is a path. By name it is one of the machine's own user, so that no principal can
// put another in its place; those of principals are named by id.
func (r *Registry) named(template string) (_ *snapshot, giveBack func(), err error) {
	name, ok := strings.CutPrefix(template, catalog.FromSnapshot)
	if !ok {
		return nil, nil, nil
	}
	found := r.snapshotNamed(name, "")
	if found != nil {
		giveBack, err = r.useSnapshot(found.ID)
	}
	if ours := (*api.Error)(nil); errors.As(err, &ours) && ours.Kind == api.KindLost {
		return nil, nil, err
	}
	if found == nil || err != nil {
		return nil, nil, &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("the template is snapshot %q, and the machine's user has none of that name; make it with: tine session snapshot ID --name %s, or name one by its id", name, name)}
	}
	return found, giveBack, nil
}

// templateSnapshot returns, in use, the part of one server of the snapshot that its
// template names, with the snapshot's id; nil where the template is a path. All
// instances begin with what the first one had.
func (r *Registry) templateSnapshot(template string, e *catalog.Entry) (from *driver.Snapshot, id string, giveBack func(), err error) {
	snap, giveBack, err := r.named(template)
	if snap == nil || err != nil {
		return nil, "", nil, err
	}
	for _, m := range snap.Members {
		if m.Server != e.Base() {
			continue
		}
		if m.Snapshot.Driver != e.Driver {
			giveBack()
			return nil, "", nil, &api.Error{Kind: api.KindInvalid, Server: e.ID, Message: fmt.Sprintf("server %q is run by driver %q, and its template was made by %q", e.ID, e.Driver, m.Snapshot.Driver)}
		}
		return &m.Snapshot, snap.ID, giveBack, nil
	}
	giveBack()
	return nil, "", nil, &api.Error{Kind: api.KindInvalid, Server: e.ID, Message: fmt.Sprintf("server %q: snapshot %q, its template, has nothing of it", e.ID, snap.Name)}
}

// templateWorkspace is the same for the workspace.
func (r *Registry) templateWorkspace(template string) (from *workspace.Frozen, id string, giveBack func(), err error) {
	snap, giveBack, err := r.named(template)
	if snap == nil || err != nil {
		return nil, "", nil, err
	}
	if snap.Workspace == nil {
		giveBack()
		return nil, "", nil, &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("snapshot %q, the template of workspaces, has no workspace", snap.Name)}
	}
	return snap.Workspace, snap.ID, giveBack, nil
}
