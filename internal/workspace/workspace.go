// Package workspace is the directory of a session that its members see: a tree
// in layers where all of them are inside the binary, and a folder of the host
// where a program needs one. Both look the same to a server.
//
//	err := store.Seed(ctx, dir, workspace.Seed{Template: "/srv/template"})
//	w, err := store.Open(dir)                // every member opens it
//	err = w.FS().Write("a.txt", r, size)     // what one writes the others read
//	frozen, err := store.Freeze(ctx, dir, into)
//	err = store.Seed(ctx, child, workspace.Seed{From: &frozen})
//	err = store.Discard(ctx, frozen)         // the child does not need it
//
// A tree forks at the same cost whatever is in it; a folder is copied. A frozen
// workspace of one kind seeds one of either.
package workspace

import (
	"errors"
	"sync"

	"github.com/tine-mcp/tine/internal/layer"
)

// ErrEscape is the error of a name that leads out of the tree.
var ErrEscape = errors.New("the name leads out of its place")

// The kinds of a workspace.
const (
	KindTree   = "tree"
	KindFolder = "folder"
)

// A Workspace is one session's directory, open.
type Workspace struct {
	fs  FS
	dir string
	// The state that a tree is; nil and empty for a folder.
	layers *layer.Store
	state  string

	once  sync.Once
	close func() error
}

// FS is the tree.
func (w *Workspace) FS() FS { return w.fs }

// Dir is the path of the folder; empty when the workspace is a tree in layers,
// which no program can see.
func (w *Workspace) Dir() string { return w.dir }

// Kind is KindTree or KindFolder.
func (w *Workspace) Kind() string {
	if w.dir == "" {
		return KindTree
	}
	return KindFolder
}

// Close lets go of it; the FS must not be used any more. Twice is fine.
func (w *Workspace) Close() (err error) {
	w.once.Do(func() {
		if w.close != nil {
			err = w.close()
		}
	})
	return err
}
