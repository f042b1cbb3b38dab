package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/workspace"
)

// diffLimit bounds what a diff keeps in memory of a state, in bytes, and how many
// differences it has.
const (
	diffBytes = 256 << 20
	diffCount = 100_000
)

// Diff tells what is another in the session than in a snapshot: in its workspace, and in
// what its built-in servers remember. Members that hidden is true for are left out. Nothing
// is started, woken or changed.
func (s *Session) Diff(ctx context.Context, snapshot string, hidden func(member string) bool) (api.Diff, error) {
	out := api.Diff{From: snapshot, Files: []api.FileDiff{}, Tables: []api.TableDiff{}, Graph: []api.GraphDiff{}}
	giveBack, err := s.r.useSnapshot(snapshot)
	if err != nil {
		return out, err
	}
	defer giveBack()
	snap := s.r.snapshotByID(snapshot)
	if snap == nil {
		return out, noSnapshot(snapshot)
	}
	if snap.Workspace != nil || s.hasState(workspaceState) {
		err := s.diffSpace(ctx, snap, func(change, name string, info workspace.Info) error {
			f := FileOf(name, info)
			if len(out.Files) == diffCount {
				return tooDifferent()
			}
			out.Files = append(out.Files, api.FileDiff{Place: "workspace", Path: name, Change: change, Type: f.Type, Size: f.Size})
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	for _, e := range s.members() {
		if hidden(e.ID) || e.WorksOnSpace() || !e.HasState() {
			continue
		}
		r, ok := e.Runner.(driver.StateReader)
		if !ok || !r.Reads(e.Spec()) {
			out.Other = append(out.Other, api.Uncompared{Server: e.ID, Reason: fmt.Sprintf("what driver %q keeps of it can't be compared", e.Driver)})
			continue
		}
		if err := s.diffState(ctx, r, e, snap, func(change string, it driver.Item) error { return tell(&out, e.ID, change, it) }); err != nil {
			return out, memberError(e.ID, "comparing its state", err)
		}
	}
	return out, nil
}

// tell adds an item of a state that is another.
func tell(d *api.Diff, server, change string, it driver.Item) error {
	if len(d.Tables)+len(d.Graph) == diffCount {
		return tooDifferent()
	}
	switch it.Kind {
	case "table":
		d.Tables = append(d.Tables, api.TableDiff{Server: server, Table: it.Name, Change: change, Row: it.Value})
	case "schema":
		var sql string
		if err := json.Unmarshal(it.Value, &sql); err != nil {
			return err
		}
		d.Tables = append(d.Tables, api.TableDiff{Server: server, Table: it.Name, Change: change, Schema: sql})
	default:
		d.Graph = append(d.Graph, api.GraphDiff{Server: server, Kind: it.Kind, Change: change, Value: it.Value})
	}
	return nil
}

// ReadState tells what a built-in server of the session remembers, or what it did in a
// snapshot. Nothing is started, woken or changed.
func (s *Session) ReadState(ctx context.Context, member, snapshot string, each func(driver.Item) error) error {
	e, err := s.alone(member, "state")
	if err != nil {
		return err
	}
	r, ok := e.Runner.(driver.StateReader)
	if !ok || !r.Reads(e.Spec()) {
		return &api.Error{Kind: api.KindRefused, Server: member, Status: http.StatusConflict, Message: fmt.Sprintf("server %q: only what the built-in servers memory and sqlite remember can be read like this; files are read with `tine session cp`", member)}
	}
	spec := e.Spec()
	spec.Session, spec.State = s.ID, s.stateDir(e.ID)
	if snapshot == "" {
		if !s.hasState(e.ID) {
			return nil
		}
		return readError(e.ID, r.ReadState(ctx, spec, nil, each))
	}
	giveBack, err := s.r.useSnapshot(snapshot)
	if err != nil {
		return err
	}
	defer giveBack()
	snap := s.r.snapshotByID(snapshot)
	if snap == nil {
		return noSnapshot(snapshot)
	}
	for i := range snap.Members {
		if snap.Members[i].Server == e.ID {
			return readError(e.ID, r.ReadState(ctx, spec, &snap.Members[i].Snapshot, each))
		}
	}
	return nil
}

func readError(member string, err error) error {
	if err == nil {
		return nil
	}
	return memberError(member, "reading its state", err)
}

func tooDifferent() error {
	return &api.Error{Kind: api.KindRefused, Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("there are more than %d differences, which is the most that an answer has", diffCount)}
}

// diffSpace compares the workspace, where neither side need have one.
func (s *Session) diffSpace(ctx context.Context, snap *snapshot, each func(change, name string, info workspace.Info) error) error {
	ws, err := s.openWorkspace(ctx, 0)
	if err != nil {
		return err
	}
	if snap.Workspace == nil {
		return FileError("workspace", "", workspace.List(ctx, ws.FS(), "", true, func(name string, info workspace.Info) error {
			return each(workspace.Added, name, info)
		}))
	}
	return FileError("workspace", "", s.r.o.Workspaces.View(*snap.Workspace, func(was workspace.FS) error {
		return workspace.Diff(ctx, was, ws.FS(), each)
	}))
}

// diffState compares what a server remembers, item by item: one that is there twice is two.
func (s *Session) diffState(ctx context.Context, r driver.StateReader, e *catalog.Entry, snap *snapshot, tell func(change string, it driver.Item) error) error {
	type key struct{ kind, name, value string }
	was, held := make(map[key]int), 0
	spec := e.Spec()
	spec.Session, spec.State = s.ID, s.stateDir(e.ID)
	if i := slices.IndexFunc(snap.Members, func(m frozenMember) bool { return m.Server == e.ID }); i >= 0 {
		err := r.ReadState(ctx, spec, &snap.Members[i].Snapshot, func(it driver.Item) error {
			if held += len(it.Value); held > diffBytes {
				return &api.Error{Kind: api.KindRefused, Server: e.ID, Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("server %q has more than %s in the snapshot, which is the most that is compared", e.ID, bytesText(diffBytes))}
			}
			was[key{it.Kind, it.Name, string(it.Value)}]++
			return nil
		})
		if err != nil {
			return err
		}
	}
	if s.hasState(e.ID) {
		err := r.ReadState(ctx, spec, nil, func(it driver.Item) error {
			k := key{it.Kind, it.Name, string(it.Value)}
			if was[k] > 0 {
				if was[k]--; was[k] == 0 {
					delete(was, k)
				}
				return nil
			}
			return tell(workspace.Added, it)
		})
		if err != nil {
			return err
		}
	}
	gone := slices.SortedFunc(maps.Keys(was), func(a, b key) int {
		return slices.Compare([]string{a.kind, a.name, a.value}, []string{b.kind, b.name, b.value})
	})
	for _, k := range gone {
		for range was[k] {
			if err := tell(workspace.Removed, driver.Item{Kind: k.kind, Name: k.name, Value: []byte(k.value)}); err != nil {
				return err
			}
		}
	}
	return nil
}
