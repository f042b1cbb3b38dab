package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/wire"
	"github.com/tine-mcp/tine/internal/workspace"
)

// Files of a session are at a place: the workspace, or a member of it. Those of a member are
// what its driver says: the declared directories of a process, all that a sandbox or a
// container has.

// putArguments and putResult are what the journal has of files that were copied in.
type putArguments struct {
	Place string `json:"place"`
	Path  string `json:"path"`
}

type putResult struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

// PutFiles unpacks an archive below a path of a place. It is inside the session's gate, so
// that a fork waits for it, and in the journal, as the id says. What was put before an
// error stays. As is the path that the journal has.
func (s *Session) PutFiles(ctx context.Context, who, place, at, as string, r io.Reader, l workspace.Limits) (done workspace.Copied, id string, err error) {
	params, err := json.Marshal(map[string]any{"arguments": putArguments{place, as}})
	if err != nil {
		return done, "", err
	}
	req := &upstream.Request{Method: driver.MethodPut, Name: path.Join(place, as), Who: who, Params: wire.Params{Raw: params}}
	result := func(err error) ([]byte, error) {
		if err != nil {
			return nil, FileError(place, at, err)
		}
		return json.Marshal(putResult{done.Files, done.Bytes})
	}
	if place == config.WorkspacePlace {
		err = s.actInSpace(ctx, req, func(ctx context.Context, f workspace.FS) ([]byte, error) {
			var err error
			done, err = workspace.Unpack(ctx, f, at, r, l)
			return result(err)
		})
		return done, req.Call, err
	}
	if _, err := s.filesOf(place); err != nil {
		return done, "", err
	}
	err = s.act(ctx, place, "cp", req, func(ctx context.Context, up *upstream.Upstream) ([]byte, error) {
		return result(up.Files(ctx, req, func(ctx context.Context, f driver.Filer, spec driver.Spec) (err error) {
			done, err = f.PutFiles(ctx, spec, at, r, l)
			return err
		}))
	})
	return done, req.Call, err
}

// actInSpace does something to the workspace: inside the gate, and in the journal as the
// config says for servers that say nothing.
func (s *Session) actInSpace(ctx context.Context, req *upstream.Request, do func(ctx context.Context, f workspace.FS) ([]byte, error)) error {
	if err := s.Expired(); err != nil {
		return err
	}
	if err := s.refuses(""); err != nil {
		return err
	}
	defer s.InUse()()
	req.Session = s.ID
	ctx, leave, err := s.gate.enter(ctx, "workspace cp")
	if err != nil {
		return err
	}
	defer leave()
	_, err = record.NewServer(config.WorkspacePlace, s.r.Catalog().Config.Journal.Mode, s.r.o.Record).Wrap(config.WorkspacePlace, callerFunc(
		func(ctx context.Context, _ *upstream.Request) (*upstream.Result, error) {
			ws, err := s.openWorkspace(ctx, 0)
			if err != nil {
				return nil, err
			}
			b, err := do(ctx, ws.FS())
			if err != nil {
				return nil, err
			}
			return &upstream.Result{Result: b}, nil
		})).Call(ctx, req)
	return err
}

// GetFiles writes what is at a path of a place as an archive. Files that the host has are
// read without starting or waking the member.
func (s *Session) GetFiles(ctx context.Context, who, place, at string, w io.Writer, l workspace.Limits) (done workspace.Copied, err error) {
	f, rest, err := s.still(ctx, place, at)
	if err != nil {
		return done, err
	}
	if f != nil {
		done, err = workspace.Pack(ctx, f, rest, w, l)
		return done, FileError(place, at, err)
	}
	if _, err := s.alone(place, "cp"); err != nil {
		return done, err
	}
	in, err := s.In(place)
	if err != nil {
		return done, err
	}
	defer in.InUse()()
	ctx, leave, err := in.Enter(ctx, place, "") // which counts as no call
	if err != nil {
		return done, err
	}
	defer leave()
	up, _, err := s.Upstream(place)
	if err != nil {
		return done, err
	}
	req := &upstream.Request{Method: driver.MethodPut, Who: who, Session: in.ID}
	err = up.Files(ctx, req, func(ctx context.Context, f driver.Filer, spec driver.Spec) (err error) {
		done, err = f.GetFiles(ctx, spec, at, w, l)
		return err
	})
	return done, FileError(place, at, err)
}

// ListFiles lists what is at a path of a place, without starting or waking the member.
func (s *Session) ListFiles(ctx context.Context, place, at string, all bool, each func(name string, info workspace.Info) error) error {
	f, rest, err := s.still(ctx, place, at)
	if err != nil {
		return err
	}
	if f == nil {
		base, _ := catalog.SplitMember(place)
		return &api.Error{Kind: api.KindRefused, Server: place, Status: http.StatusConflict, Message: fmt.Sprintf(
			"server %q: /%s is in what its instance has, and is not listed, since that would wake it; the workspace and the directories of servers.%s.state are, and `tine session exec` runs ls", place, at, base)}
	}
	before := strings.TrimSuffix(strings.Trim(at, "/"), strings.Trim(rest, "/"))
	return FileError(place, at, workspace.List(ctx, f, rest, all, func(name string, info workspace.Info) error {
		return each(path.Join(before, name), info)
	}))
}

// still is the files at a path that can be read while nothing runs, and the rest of the
// path; nil where only the running instance has them.
func (s *Session) still(ctx context.Context, place, at string) (workspace.FS, string, error) {
	if place == config.WorkspacePlace {
		ws, err := s.openWorkspace(ctx, 0)
		if err != nil {
			return nil, "", err
		}
		return ws.FS(), at, nil
	}
	e, err := s.filesOf(place)
	if err != nil {
		return nil, "", err
	}
	d, ok := e.Runner.(driver.StateFiles)
	if !ok {
		return nil, "", nil
	}
	rest := strings.Trim(at, "/")
	if e.Info().Walls {
		if rest, ok = strings.CutPrefix(rest, "state/"); !ok {
			return nil, "", nil
		}
	}
	state := s.stateDir(e.ID)
	f, rest, err := driver.Folders{Server: e.Base(), Dirs: e.Spec().Dirs, At: func(name string) string { return d.StateDir(state, name) }}.Open(rest)
	return f, rest, FileError(place, at, err)
}

// filesOf is a member that has files.
func (s *Session) filesOf(place string) (*catalog.Entry, error) {
	e, err := s.alone(place, "cp")
	if err != nil {
		return nil, err
	}
	why := ""
	if e.Builtin != "" && e.Front == "" {
		why = "has no files; `tine session diff` shows what is in it"
		if e.WorksOnSpace() {
			why = "works on the workspace; use workspace in its place"
		}
	} else if e.URL != "" || e.Info().Details {
		why = "runs elsewhere, where no files can be copied"
	}
	if why != "" {
		return nil, &api.Error{Kind: api.KindRefused, Server: place, Status: http.StatusConflict, Message: fmt.Sprintf("server %q %s", place, why)}
	}
	return e, nil
}

// FileError is an error about a file in the words of the API.
func FileError(place, at string, err error) error {
	var ours *api.Error
	if err == nil || errors.As(err, &ours) {
		return err
	}
	at = strings.Trim(at, "/")
	message := fmt.Sprintf("%s/%s: %v", place, at, err)
	var wrong *fs.PathError
	if errors.As(err, &wrong) { // names come last: what follows "passwd: " would be taken for a secret
		message = fmt.Sprintf("%v: %s/%s", wrong.Err, place, at)
		if name := strings.Trim(wrong.Path, "/"); name != at && name != "." {
			message += ", at " + name
		}
	}
	e := &api.Error{Kind: api.KindInvalid, Message: message}
	if place != config.WorkspacePlace {
		e.Server = place
	}
	switch {
	case errors.Is(err, workspace.ErrLimit), errors.Is(err, workspace.ErrFull):
		e.Kind, e.Status = api.KindRefused, http.StatusRequestEntityTooLarge
	case errors.Is(err, fs.ErrNotExist):
		e.Status = http.StatusNotFound
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Kind = api.KindRefused
	case slices.Contains(strings.Split(at, "/"), ".."):
	case errors.Is(err, workspace.ErrEscape), wrong != nil:
		e.Status = http.StatusUnprocessableEntity // the request is right, and what is there can't be used
	default:
		e.Kind, e.Retryable = api.KindInfrastructure, true
	}
	return e
}

// SpaceOf shows the workspace of a snapshot, for as long as use takes. One that was made
// before the workspace was used has nothing in it, as Diff says, too.
func (r *Registry) SpaceOf(ctx context.Context, snapshot string, use func(workspace.FS) error) error {
	giveBack, err := r.useSnapshot(snapshot)
	if err != nil {
		return err
	}
	defer giveBack()
	snap := r.snapshotByID(snapshot)
	if snap == nil {
		return noSnapshot(snapshot)
	}
	if snap.Workspace == nil {
		return r.o.Workspaces.ViewEmpty(use)
	}
	return r.o.Workspaces.View(*snap.Workspace, use)
}

// fileTime is a time as the API has it.
func fileTime(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// FileOf describes a file for the API.
func FileOf(name string, info workspace.Info) api.File {
	f := api.File{Path: name, Mode: fmt.Sprintf("%04o", info.Mode.Perm()), Modified: fileTime(info.Modified)}
	switch {
	case info.Mode.IsDir():
		f.Type = api.FileDir
	case info.Mode&fs.ModeSymlink != 0:
		f.Type, f.Target = api.FileLink, info.Target
	case info.Mode.IsRegular():
		f.Type, f.Size = api.FileRegular, info.Size
	default:
		f.Type = api.FileOther
	}
	return f
}
