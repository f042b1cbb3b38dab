package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// Reconciled is what the folders of sessions and snapshots knew that the store
// did not.
type Reconciled struct {
	Back          []string // sessions whose record was missing, or older
	Closed        []string // sessions that were closed, or whose folder is gone
	Corrected     []string // sessions and snapshots of which the store had another record than their folder
	Catalogs      []string // keys of which the store had other servers than those of the hash
	SnapshotsBack []string
	SnapshotsGone []string
	Unreadable    []string // folders whose record can't be read; they stay as they are
}

// Empty reports whether the store and the folders agreed.
func (r Reconciled) Empty() bool {
	return len(r.Back)+len(r.Closed)+len(r.Corrected)+len(r.Catalogs)+len(r.SnapshotsBack)+len(r.SnapshotsGone)+len(r.Unreadable) == 0
}

// Reconcile brings a store and the folders below states to agree: what a folder
// has a record of comes into the store where that has none or an older one, and
// folders without a record get the store's. With missing, as after a restore,
// sessions and snapshots of the store that had folders which are gone are closed and
// forgotten. With dry nothing is changed, neither here nor there.
func Reconcile(ctx context.Context, st Records, states string, missing, dry bool) (Reconciled, error) {
	c := reconciling{st: st, states: states, missing: missing, dry: dry}
	if err := c.sessions(ctx); err != nil {
		return c.out, fmt.Errorf("comparing sessions with their folders: %w", err)
	}
	if err := c.snapshots(ctx); err != nil {
		return c.out, fmt.Errorf("comparing snapshots with their folders: %w", err)
	}
	return c.out, nil
}

type reconciling struct {
	st           Records
	states       string
	missing, dry bool
	out          Reconciled
}

// folders lists what could be a session or a snapshot.
func folders(dir, prefix string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := make(map[string]bool)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			all[e.Name()] = true
		}
	}
	return all, nil
}

func (c *reconciling) sessions(ctx context.Context) error {
	there, err := folders(filepath.Join(c.states, "sessions"), sessionPrefix)
	if err != nil {
		return err
	}
	open, err := c.st.Sessions(ctx)
	if err != nil {
		return err
	}
	for _, rec := range open {
		if err := c.session(ctx, rec, there[rec.ID]); err != nil {
			return err
		}
		delete(there, rec.ID)
	}
	for id := range there {
		if err := c.sessionOf(ctx, id); err != nil {
			return err
		}
	}
	slices.Sort(c.out.Back)
	return nil
}

// session compares an open session of the store with its folder.
func (c *reconciling) session(ctx context.Context, rec store.Session, there bool) error {
	f := recordOfSession(c.states, rec.ID)
	if !there {
		facts, err := factsOf(rec)
		switch {
		case err != nil:
			return err
		case c.missing && facts.hadFolder(rec.Kind):
			return c.close(ctx, rec, facts, "its folder was gone when the database was restored")
		case rec.Kind == KindOpened && facts.Rev == 0 && !c.dry:
			return c.giveFolder(ctx, rec, facts)
		}
		return nil
	}
	switch f.says() {
	case folderGone:
		facts, err := factsOf(rec)
		if err != nil {
			return err
		}
		return c.close(ctx, rec, facts, "it was closed before, and the database did not know it any more")
	case folderWhole:
	case folderUnknown:
		c.out.Unreadable = append(c.out.Unreadable, f.dir)
		return nil
	default: // it comes from an earlier version, or was written a moment before a death
		if c.dry {
			return nil
		}
		return f.write(keptOf(rec))
	}
	var kept keptSession
	if err := f.read(&kept); err != nil || kept.ID != rec.ID {
		c.out.Unreadable = append(c.out.Unreadable, f.dir)
		if c.dry || c.missing { // an older store must not replace what can't be read
			return nil
		}
		return f.write(keptOf(rec))
	}
	theirs, err := factsOf(kept.session())
	if err != nil {
		return err
	}
	mine, err := factsOf(rec)
	switch {
	case err != nil || theirs.Rev == mine.Rev && kept.differs(rec):
		c.out.Corrected = append(c.out.Corrected, rec.ID)
		return c.take(ctx, kept, rec.Used)
	case theirs.Rev > mine.Rev:
		c.out.Back = append(c.out.Back, rec.ID)
		return c.take(ctx, kept, rec.Used)
	case theirs.Rev < mine.Rev && !c.dry:
		return f.write(keptOf(rec))
	}
	return nil
}

// giveFolder makes the folder of a session that comes from a version which made
// none before there was something to keep.
func (c *reconciling) giveFolder(ctx context.Context, rec store.Session, facts facts) (err error) {
	facts.Rev = 1
	if rec.Data, err = json.Marshal(facts); err != nil {
		return err
	}
	f := recordOfSession(c.states, rec.ID)
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return err
	}
	if err := f.write(keptOf(rec)); err != nil {
		return err
	}
	return c.st.PutSessions(ctx, rec)
}

// sessionOf sees whether a folder is that of a session which the store lacks.
func (c *reconciling) sessionOf(ctx context.Context, id string) error {
	f := recordOfSession(c.states, id)
	if f.says() != folderWhole {
		return nil
	}
	rec, known, err := c.st.Session(ctx, id)
	if err != nil {
		return err
	}
	var kept keptSession
	if err := f.read(&kept); err != nil || kept.ID != id {
		if !known {
			c.out.Unreadable = append(c.out.Unreadable, f.dir)
		}
		return nil
	}
	if !known {
		c.out.Back = append(c.out.Back, id)
		return c.take(ctx, kept, time.Time{})
	}
	if kept.hasEnded(rec) {
		return nil
	}
	c.out.Corrected = append(c.out.Corrected, id)
	return c.take(ctx, kept, rec.Used)
}

// hasEnded reports whether a session that the store has as closed was: an end counts its
// record up, unlike a byte that has changed by itself.
func (k keptSession) hasEnded(rec store.Session) bool {
	mine, err := factsOf(rec)
	theirs, unread := factsOf(k.session())
	return unread != nil || err == nil && mine.Rev > theirs.Rev
}

// take writes the record of a folder into the store.
func (c *reconciling) take(ctx context.Context, kept keptSession, used time.Time) error {
	if c.dry {
		return nil
	}
	servers, err := c.catalog(ctx, kept.Catalog)
	if err != nil {
		return err
	}
	rec := kept.session()
	rec.Servers = servers
	if rec.Used.Before(used) {
		rec.Used = used
	}
	return c.st.PutSessions(ctx, rec)
}

// catalog returns the servers behind a key of a record that is taken; nil where they
// are not recorded.
func (c *reconciling) catalog(ctx context.Context, key string) (json.RawMessage, error) {
	servers, stored, err := catalog.Find(ctx, c.st, c.states, key)
	if stored == catalog.OtherServers && servers != nil {
		c.out.Catalogs = append(c.out.Catalogs, key)
	}
	return servers, err
}

func (c *reconciling) close(ctx context.Context, rec store.Session, f facts, reason string) (err error) {
	c.out.Closed = append(c.out.Closed, rec.ID)
	if c.dry {
		return nil
	}
	f.Reason = reason
	if rec.Data, err = json.Marshal(f); err != nil {
		return err
	}
	rec.Closed = time.Now().UTC()
	return c.st.PutSessions(ctx, rec)
}

func (c *reconciling) snapshots(ctx context.Context) error {
	there, err := folders(filepath.Join(c.states, "snapshots"), snapshotPrefix)
	if err != nil {
		return err
	}
	all, err := c.st.Snapshots(ctx)
	if err != nil {
		return err
	}
	for _, rec := range all {
		f := recordOfSnapshot(c.states, rec.ID)
		switch says := f.says(); {
		case says == folderGone || c.missing && !there[rec.ID]:
			c.out.SnapshotsGone = append(c.out.SnapshotsGone, rec.ID)
			if !c.dry {
				err = c.st.DeleteSnapshot(ctx, rec.ID)
			}
		case there[rec.ID] && (says == folderSilent || says == folderNew) && !c.dry:
			err = f.write(keptSnapshotOf(rec))
		case says == folderWhole && !rec.Temporary:
			err = c.snapshot(ctx, rec, f)
		}
		if err != nil {
			return err
		}
		delete(there, rec.ID)
	}
	for id := range there {
		if err := c.snapshotOf(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// snapshot compares a snapshot of the store with its folder.
func (c *reconciling) snapshot(ctx context.Context, rec store.Snapshot, f folderRecord) error {
	var kept keptSnapshot
	if err := f.read(&kept); err != nil || kept.ID != rec.ID {
		c.out.Unreadable = append(c.out.Unreadable, f.dir)
		if c.dry || c.missing { // as of a session
			return nil
		}
		return f.write(keptSnapshotOf(rec))
	}
	if !kept.differs(rec) {
		return nil
	}
	c.out.Corrected = append(c.out.Corrected, rec.ID)
	if rec.Name == "" {
		kept.Name = ""
	}
	return c.takeSnapshot(ctx, kept)
}

// snapshotOf sees whether a folder is that of a snapshot which the store lacks.
func (c *reconciling) snapshotOf(ctx context.Context, id string) error {
	f := recordOfSnapshot(c.states, id)
	if f.says() != folderWhole {
		return nil
	}
	var kept keptSnapshot
	if err := f.read(&kept); err != nil || kept.ID != id {
		c.out.Unreadable = append(c.out.Unreadable, f.dir)
		return nil
	}
	c.out.SnapshotsBack = append(c.out.SnapshotsBack, id)
	return c.takeSnapshot(ctx, kept)
}

// takeSnapshot writes the record of a folder into the store.
func (c *reconciling) takeSnapshot(ctx context.Context, kept keptSnapshot) error {
	if c.dry {
		return nil
	}
	servers, err := c.catalog(ctx, kept.Catalog)
	if err != nil {
		return err
	}
	rec := kept.snapshot()
	rec.Servers = servers
	err = c.st.PutSnapshot(ctx, rec)
	if errors.Is(err, store.ErrExists) { // the name is another one's by now
		rec.Name = ""
		err = c.st.PutSnapshot(ctx, rec)
	}
	return err
}
