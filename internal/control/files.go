package control

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/workspace"
)

// copyLimits bound what is copied by one request.
var copyLimits = workspace.Limits{Files: 200_000, Bytes: 8 << 30}

// MaxCopy is how many bytes of files one request may have.
func MaxCopy() int64 { return copyLimits.Bytes }

// maxListed bounds a listing, and a diff.
const maxListed = 200_000

// PutFiles copies files into a place of a session: an archive is unpacked below the path.
func (c *Sessions) PutFiles(ctx context.Context, who identity.Principal, id, place, at string, archive io.Reader) (api.Put, error) {
	done, err := c.put(ctx, who, id, place, at, at, archive)
	if e := new(api.Error); errors.As(err, &e) && done.Files > 1 { // the last one is what failed
		partly := *e
		partly.Message += "; what came before that is copied"
		err = &partly
	}
	return done, err
}

// put is PutFiles with the path that the journal has.
func (c *Sessions) put(ctx context.Context, who identity.Principal, id, place, at, as string, archive io.Reader) (api.Put, error) {
	s, place, err := c.placeIn(ctx, who, id, place, true)
	if err != nil {
		return api.Put{}, err
	}
	done, call, err := s.PutFiles(ctx, who.Name, place, at, strings.Trim(as, "/"), archive, copyLimits)
	return api.Put{Files: done.Files, Bytes: done.Bytes, ID: call}, access.Unnamed(who, err)
}

// PutFile copies one file into a place of a session, of a size that is known.
func (c *Sessions) PutFile(ctx context.Context, who identity.Principal, id, place, at string, mode int64, size int64, content io.Reader) (api.Put, error) {
	dir, base := path.Split(strings.Trim(at, "/"))
	if base == "" || base == "." || base == ".." {
		return api.Put{}, Invalid("the path must name a file; a folder is copied as a tar, with Content-Type: application/x-tar")
	}
	in, out := io.Pipe()
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		w := tar.NewWriter(out)
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: base, Mode: mode, Size: size, ModTime: time.Now()})
		if err == nil {
			var n int64
			if n, err = io.Copy(w, content); err == nil && n < size {
				err = fmt.Errorf("the file ended after %d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
			}
		}
		if err == nil {
			err = w.Close()
		}
		out.CloseWithError(err)
	}()
	done, err := c.put(ctx, who, id, place, dir, at, in)
	in.CloseWithError(io.ErrClosedPipe)
	<-filled
	return done, err
}

// A Fetched is what was asked for of a place.
type Fetched struct {
	Dir bool // it is a folder, and the content an archive
	// Mode and Size are of a file.
	Mode    int64
	Size    int64
	Write   func(w io.Writer) error // writes the content, once
	Abandon func()                  // lets go of it; also after Write
}

// GetFiles copies a file or a folder out of a place of a session, or of its workspace in a
// snapshot.
func (c *Sessions) GetFiles(ctx context.Context, who identity.Principal, id, place, at, snapshot string) (*Fetched, error) {
	s, place, err := c.placeIn(ctx, who, id, place, false)
	if err != nil {
		return nil, err
	}
	produce := func(w io.Writer) (workspace.Copied, error) {
		return s.GetFiles(ctx, who.Name, place, at, w, copyLimits)
	}
	if snapshot != "" {
		snap, err := c.spaceOf(who, place, snapshot)
		if err != nil {
			return nil, err
		}
		produce = func(w io.Writer) (done workspace.Copied, err error) {
			err = c.reg.SpaceOf(ctx, snap, func(f workspace.FS) (err error) {
				done, err = workspace.Pack(ctx, f, at, w, copyLimits)
				return session.FileError(place, at, err)
			})
			return done, err
		}
	}
	in, out := io.Pipe()
	done := make(chan struct{})
	var copied workspace.Copied
	go func() {
		defer close(done)
		var err error
		copied, err = produce(out)
		out.CloseWithError(access.Unnamed(who, err))
	}()
	f := &Fetched{Abandon: func() {
		in.CloseWithError(io.ErrClosedPipe)
		<-done
	}}
	// An archive may be whole, and its maker fail after that: it could not read something.
	rest := func() (workspace.Copied, error) {
		_, err := io.Copy(io.Discard, in)
		<-done
		return copied, err
	}
	archive := tar.NewReader(in)
	first, err := archive.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			_, err = rest()
		}
		f.Abandon()
		if err == nil {
			err = &api.Error{Kind: api.KindInfrastructure, Retryable: true, Message: "nothing was copied"}
		}
		return nil, err
	}
	switch first.Typeflag {
	case tar.TypeReg:
		f.Mode, f.Size = first.Mode, first.Size
		f.Write = func(w io.Writer) error {
			_, err := io.Copy(w, archive)
			if err == nil {
				_, err = rest()
			}
			return err
		}
	case tar.TypeDir:
		f.Dir = true
		f.Write = func(w io.Writer) error { return passOn(w, first, archive, rest) }
	default:
		f.Abandon()
		e := Invalid("%s/%s is a link to %s; copy that, or the folder that the link is in", place, at, first.Linkname)
		e.Status = http.StatusUnprocessableEntity
		return nil, e
	}
	return f, nil
}

// passOn writes an archive that is being read. Its last entry may be the root once more,
// which says what was left out, or why it breaks off.
func passOn(w io.Writer, root *tar.Header, in *tar.Reader, rest func() (workspace.Copied, error)) error {
	out := tar.NewWriter(w)
	note := func(key string, v any) error {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: root.Name, Mode: root.Mode, PAXRecords: map[string]string{key: string(text)}})
	}
	breakOff := func(err error) error {
		var told *api.Error
		if errors.As(err, &told) {
			_ = note(api.TarError, told) // which fails in the middle of a file
		}
		return err
	}
	h := root
	for {
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return breakOff(err)
		}
		var err error
		if h, err = in.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return breakOff(err)
		}
	}
	done, err := rest()
	if err != nil {
		return breakOff(err)
	}
	if len(done.LeftOut) > 0 {
		if err := note(api.TarLeftOut, done.LeftOut); err != nil {
			return err
		}
	}
	return out.Close()
}

// ListFiles lists what is at a path of a place of a session, or of its workspace in a snapshot.
// Nothing is started or woken for it.
func (c *Sessions) ListFiles(ctx context.Context, who identity.Principal, id, place, at, snapshot string, all bool) (api.FileList, error) {
	s, place, err := c.placeIn(ctx, who, id, place, false)
	if err != nil {
		return api.FileList{}, err
	}
	list := api.FileList{Files: []api.File{}}
	each := func(name string, info workspace.Info) error {
		if len(list.Files) == maxListed {
			return tooMuch()
		}
		list.Files = append(list.Files, session.FileOf(name, info))
		return nil
	}
	if snapshot == "" {
		return list, access.Unnamed(who, s.ListFiles(ctx, place, at, all, each))
	}
	snap, err := c.spaceOf(who, place, snapshot)
	if err != nil {
		return list, err
	}
	return list, c.reg.SpaceOf(ctx, snap, func(f workspace.FS) error {
		return session.FileError(place, at, workspace.List(ctx, f, at, all, each))
	})
}

func tooMuch() error {
	return &api.Error{Kind: api.KindRefused, Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("there are more than %d files; ask for a folder of them", maxListed)}
}

// spaceOf is the snapshot whose workspace is asked for.
func (c *Sessions) spaceOf(who identity.Principal, place, ref string) (string, error) {
	snap, err := c.snapshots.Usable(who, ref)
	if err != nil {
		return "", err
	}
	if place != config.WorkspacePlace {
		return "", &api.Error{Kind: api.KindRefused, Server: place, Status: http.StatusConflict, Message: "of a snapshot only the workspace can be read; open a session from it for the rest"}
	}
	return snap.ID, nil
}

// placeIn finds a place of a session, and refuses a principal that may not use it.
func (c *Sessions) placeIn(ctx context.Context, who identity.Principal, id, place string, write bool) (*session.Session, string, error) {
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return nil, "", err
	}
	if place = strings.TrimSuffix(place, "~0"); place != config.WorkspacePlace {
		return s, place, c.mayExec(who, s, place, "cp")
	}
	if write && !who.MayCopyInto(config.WorkspacePlace) {
		return nil, "", &api.Error{
			Kind: api.KindRefused, Status: http.StatusForbidden,
			Message: "no rule lets you copy into the workspace; exec: [" + config.WorkspacePlace + "] in a rule of auth.rules would",
		}
	}
	return s, place, nil
}

// Diff tells what is another in a session than in a snapshot.
func (c *Sessions) Diff(ctx context.Context, who identity.Principal, id, from string) (api.Diff, error) {
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return api.Diff{}, err
	}
	if from == "" {
		return api.Diff{}, Invalid("from must name a snapshot, by id or name")
	}
	snap, err := c.snapshots.Usable(who, from)
	if err != nil {
		return api.Diff{}, err
	}
	// What tools of a server may not be used must not be read around them.
	d, err := s.Diff(ctx, snap.ID, func(member string) bool { return !who.Unlimited(access.Base(member)) })
	return d, access.Unnamed(who, err)
}

// ReadState tells what a built-in server of a session remembers, or did in a snapshot.
func (c *Sessions) ReadState(ctx context.Context, who identity.Principal, id, server, snapshot string, each func(api.StateItem) error) error {
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return err
	}
	member := strings.TrimSuffix(server, "~0")
	if s.Catalog().Entry(member) == nil || !access.Starts(who, member) {
		return NoServer(member)
	}
	if !who.Unlimited(access.Base(member)) {
		return &api.Error{Kind: api.KindRefused, Server: member, Status: http.StatusForbidden, Message: fmt.Sprintf("server %q: your rules give you some of its tools, and all of it would be read; a rule that gives the whole server would let you", member)}
	}
	if snapshot != "" {
		snap, err := c.snapshots.Usable(who, snapshot)
		if err != nil {
			return err
		}
		snapshot = snap.ID
	}
	return access.Unnamed(who, s.ReadState(ctx, member, snapshot, func(it driver.Item) error {
		return each(api.StateItem{Kind: it.Kind, Name: it.Name, Value: it.Value})
	}))
}
