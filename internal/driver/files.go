package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/tine-mcp/tine/internal/workspace"
)

// A Filer is an instance whose files can be copied while it runs. Paths are
// slash-separated, from the root that Files describes, and no link leads out of it. The
// spec is as in Execer.
type Filer interface {
	// PutFiles puts the entries of an archive below a directory, as workspace.Unpack does.
	PutFiles(ctx context.Context, spec Spec, at string, r io.Reader, l workspace.Limits) (workspace.Copied, error)
	// GetFiles writes what is at a path as an archive, as workspace.Pack does.
	GetFiles(ctx context.Context, spec Spec, at string, w io.Writer, l workspace.Limits) (workspace.Copied, error)
}

// StateFiles is a driver that keeps what its servers remember in directories of the host,
// by the names that the config declares. They can be looked at while no instance runs.
type StateFiles interface {
	// StateDir is the folder of a declared directory in a state.
	StateDir(state, name string) string
}

// An Item is a part of what a server remembers: a row of a table, or a part of a graph.
type Item struct {
	Kind  string // table, schema, entity, observation or relation
	Name  string // of the table
	Value json.RawMessage
}

// A StateReader is a Keeper that can tell what is in a state or a snapshot, with no instance
// of it and while one works on it.
type StateReader interface {
	// Reads reports whether it can, for a server with this spec.
	Reads(spec Spec) bool
	// ReadState tells what is in a snapshot or, without one, in the state at spec.State as it
	// is now. An error of each ends it.
	ReadState(ctx context.Context, spec Spec, from *Snapshot, each func(Item) error) error
}

// Folders are the declared directories of a state, for copying files: the first element of
// a path names one.
type Folders struct {
	Server string
	Dirs   []StateDir
	At     func(name string) string // where one is
}

// Open is the directory that a path begins with, and the rest of the path.
func (f Folders) Open(at string) (workspace.FS, string, error) {
	name, rest, _ := strings.Cut(strings.Trim(at, "/"), "/")
	for _, d := range f.Dirs {
		if d.Name == name {
			folder, err := workspace.Folder(f.At(name))
			return folder, rest, err
		}
	}
	if len(f.Dirs) == 0 {
		return nil, "", fmt.Errorf("its state has no directories; name some in servers.%s.state: %w", f.Server, fs.ErrNotExist)
	}
	return nil, "", fmt.Errorf("%q is not a directory of its state, with which the path begins; there is %s: %w", name, f.names(), fs.ErrNotExist)
}

func (f Folders) names() string {
	var all []string
	for _, d := range f.Dirs {
		all = append(all, d.Name)
	}
	return strings.Join(all, ", ")
}

// Put unpacks an archive below a path.
func (f Folders) Put(ctx context.Context, at string, r io.Reader, l workspace.Limits) (workspace.Copied, error) {
	to, rest, err := f.Open(at)
	if err != nil {
		return workspace.Copied{}, err
	}
	return workspace.Unpack(ctx, to, rest, r, l)
}

// Get packs what is at a path.
func (f Folders) Get(ctx context.Context, at string, w io.Writer, l workspace.Limits) (workspace.Copied, error) {
	from, rest, err := f.Open(at)
	if err != nil {
		return workspace.Copied{}, err
	}
	return workspace.Pack(ctx, from, rest, w, l)
}
