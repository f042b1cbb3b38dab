package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/workspace"
)

// The folder of a snapshot that lasts has a list of what is in it, with a checksum
// of each file: copies of workspaces and declared directories, memories of
// sandboxes, the drivers' records; the folder's own record has a sum of its own. It is made when the snapshot is, after the
// session goes on, and compared at the first use after a restart. Forks don't need
// one: what they freeze is used at once. Layers verify themselves.

// sum makes the list of a new snapshot.
func (r *Registry) sum(ctx context.Context, snap *snapshot) error {
	snap.verified = true
	dir := filepath.Join(r.snapshotHome(), snap.ID)
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var err error
	if snap.sumOf, err = clone.Sum(ctx, dir, snapshotRecord); err != nil {
		return fmt.Errorf("summing up the snapshot: %w", err)
	}
	return nil
}

// verify compares the files of a snapshot with its list, once. One from before there
// were lists has none.
func (r *Registry) verify(snap *snapshot) error {
	snap.verifying.Lock()
	defer snap.verifying.Unlock()
	if snap.verified || snap.sumOf == "" {
		return nil
	}
	err := clone.Verify(r.life, filepath.Join(r.snapshotHome(), snap.ID), snapshotRecord, snap.sumOf)
	snap.verified = err == nil
	return r.snapshotLost(snap.ID, err)
}

// snapshotLost makes an error that says that stored data is damaged one that names the
// snapshot, and returns others as they are, and where there is no snapshot.
func (r *Registry) snapshotLost(id string, err error) error {
	var known *driver.DamageError
	switch {
	case err == nil || id == "":
		return err
	case errors.As(err, &known):
		err = known.Unwrap()[1]
	case !workspace.IsDamage(err):
		return err
	}
	mend := "put it back from a backup"
	if d := (*clone.Damage)(nil); errors.As(err, &d) && d.Extra {
		mend = "remove it"
	}
	r.o.Log.Error("a snapshot is damaged; its files are kept as they are", "snapshot", id, "err", err)
	return &api.Error{
		Kind: api.KindLost, Message: fmt.Sprintf("snapshot %s can't be used: %v; %s, use another snapshot, or import it again", id, workspace.DamageIn(err), mend),
	}
}
