// Package layer keeps state that forks: append-only logs of changes, each the
// continuation of another one, and the values they fold to.
//
// A state is a chain of layers. All but the last are sealed: they never change
// again and any number of states may continue them. The last is a Head's own,
// and grows with every change. Sealing it costs the same whatever it holds, and
// so does beginning a new Head on a sealed layer; nothing is copied.
//
//	ref, err := store.Seal(parent)       // what was appended so far is frozen
//	err = store.Create(child, ref)       // a state of its own that begins there
//	h, err := layer.Open(store, child, machine)
//	h.Commit(...)                        // unseen by the parent and by siblings
//
// A change is written before Commit returns, so that the death of the process
// loses nothing that was answered; it is not synced to the disk before the layer
// is sealed for keeps (see Store.Sync).
//
// # Values
//
// What a state means is its Machine's matter: it folds changes into a value.
// Values are persistent: applying a change makes a new value that shares what
// it can with the old one, which stays as it was. So readers need no lock, a
// fork shares its parent's value, and only what an earlier process left is
// folded again.
//
// Large contents don't live in memory: a change has a small meta part, which is
// folded, and a body, which stays in the file and is read from there.
//
// # What is no longer needed
//
// A layer that nothing holds any more is removed. One that was sealed and released
// again, a snapshot of a ring or the beginning of a fork that was closed, is still
// part of the chain that goes on from it. So as far down as a chain belongs to one
// state alone, its Head writes it anew by and by, without what was overwritten and
// in few layers: see Head.tidy. Disk and depth depend on what is held, not on how
// often it was changed or sealed.
//
// # What is damaged
//
// Whatever is read was verified: heads and headers when the store is opened, metas
// when a layer is replayed, and each block of a body when it is first read after
// that. What does not have its checksum is a *Damage, which names the file and the
// offset, for the states that stand on it; others are not touched. A log whose end
// is missing, beyond a record that was never acknowledged, is a *Cut. Nothing damaged
// is written anew, and nothing is removed while it is not known what is needed.
//
// # What lasts
//
// A layer is one file in the store's folder, made with its first change. A state
// is a small file in a folder of the caller's, which names its layers. References
// are counted in memory, and counted again by Recover after a restart: the
// caller says which states and Refs there are, and what none of them needs is
// removed. So the caller writes a Ref down before it relies on it, and forgets it
// before it releases it; dying in between leaves something that is removed, never
// something that is missed.
package layer

import (
	"io"
	"log/slog"
)

// A Ref names a sealed layer. The zero Ref is the empty state.
type Ref struct {
	ID string `json:"id,omitempty"` // lyr_ and 16 hex digits
}

// A Machine folds changes into a value of type T.
type Machine[T any] struct {
	// Empty is the value of a state without changes.
	Empty T
	// Apply makes the next value. It must not change the old one, and gives the
	// same for the same, since it runs again after a restart. The meta slice is
	// only valid during the call; body says where the change's body stands, and
	// is kept as it is. It can be read, but then opening reads all there is.
	Apply func(v T, meta []byte, body Extent) (T, error)
	// Dump writes changes that lead from base to v, which came from it, of which
	// the bodies that v uses are copied. It is used to write layers anew. Optional;
	// without it they only grow.
	Dump func(base, v T, emit func(meta []byte, body io.Reader, size int64) error) error
	// Live tells how many bytes of bodies a value uses of what Dump(base, v)
	// would write, about. Optional, with Dump.
	Live func(base, v T) int64
}

// Options of a Store.
type Options struct {
	Dir      string // where layers lie; made when it is missing
	MaxFiles int    // open at once; default 512
	Log      *slog.Logger
}
