package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// A row of a database has no checksum, so a flipped byte in it looks like any other
// content. What there are sound copies of is compared with them: a session or a
// snapshot with the record in its folder, which has a sum, and the servers of a
// catalog with the key that they are found by, which is their hash.

// differs reports whether two records of one revision say something else. When a
// session was last used is written to the store alone.
func (k keptSession) differs(rec store.Session) bool {
	return k.ID != rec.ID || k.Owner != rec.Owner || k.Kind != rec.Kind || k.Parent != rec.Parent || k.Token != rec.Token ||
		k.Catalog != rec.Catalog || !k.Created.Equal(rec.Created) || !sameJSON(k.Data, rec.Data)
}

// differs reports whether a snapshot, which never changes, is another one in the
// store. The store leaves out a name that another snapshot has got meanwhile.
func (k keptSnapshot) differs(rec store.Snapshot) bool {
	return k.ID != rec.ID || rec.Name != "" && k.Name != rec.Name || k.Owner != rec.Owner || k.Session != rec.Session || !k.Created.Equal(rec.Created) ||
		k.Auto != rec.Auto || k.Size != rec.Size || k.Call != rec.Call || k.Catalog != rec.Catalog || !sameJSON(k.Data, rec.Data)
}

// sameJSON compares what is said, not how it is written.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	parse := func(raw json.RawMessage) (v any, err error) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		err = d.Decode(&v)
		return v, err
	}
	va, errA := parse(a)
	vb, errB := parse(b)
	return errA == nil && errB == nil && reflect.DeepEqual(va, vb)
}

// Faults compares a database, which may be a copy of a moment ago, with the folders
// below states and says what in it can't be right. What is newer in a folder is none.
func Faults(ctx context.Context, st Records, states string) ([]string, error) {
	sessions, err := st.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	snapshots, err := st.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	var faults []string
	catalogs := make(map[string]bool)
	for _, rec := range sessions {
		catalogs[rec.Catalog] = true
		f := recordOfSession(states, rec.ID)
		var kept keptSession
		if f.says() != folderWhole || f.read(&kept) != nil {
			continue
		}
		mine, err := factsOf(rec)
		theirs, folderErr := factsOf(kept.session())
		if folderErr == nil && (err != nil || mine.Rev == theirs.Rev && kept.differs(rec)) {
			faults = append(faults, fmt.Sprintf("session %s differs from the record in its folder %s", rec.ID, f.dir))
		}
	}
	closed, err := closedByThemselves(ctx, st, states, sessions)
	if err != nil {
		return nil, err
	}
	faults = append(faults, closed...)
	for _, rec := range snapshots {
		catalogs[rec.Catalog] = true
		f := recordOfSnapshot(states, rec.ID)
		var kept keptSnapshot
		if !rec.Temporary && f.says() == folderWhole && f.read(&kept) == nil && kept.differs(rec) {
			faults = append(faults, fmt.Sprintf("snapshot %s differs from the record in its folder %s", rec.ID, f.dir))
		}
	}
	delete(catalogs, "")
	for key := range catalogs {
		servers, ok, err := st.Catalog(ctx, key)
		if err != nil {
			return nil, err
		}
		if ok && !catalog.Is(key, servers) {
			faults = append(faults, fmt.Sprintf("the servers of catalog %s are not those that it is the hash of", key))
		}
	}
	slices.Sort(faults)
	return faults, nil
}

// closedByThemselves says which sessions are closed in the store alone, besides those
// that are open there.
func closedByThemselves(ctx context.Context, st store.Sessions, states string, open []store.Session) ([]string, error) {
	there, err := folders(filepath.Join(states, "sessions"), sessionPrefix)
	if err != nil {
		return nil, err
	}
	for _, rec := range open {
		delete(there, rec.ID)
	}
	var faults []string
	for id := range there {
		f := recordOfSession(states, id)
		var kept keptSession
		if f.says() != folderWhole || f.read(&kept) != nil {
			continue
		}
		rec, known, err := st.Session(ctx, id)
		if err != nil {
			return nil, err
		}
		if known && !kept.hasEnded(rec) {
			faults = append(faults, fmt.Sprintf("session %s is closed, and not by the record in its folder %s", id, f.dir))
		}
	}
	slices.Sort(faults)
	return faults, nil
}
