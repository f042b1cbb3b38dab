package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// snapshotPrefix begins the id of every snapshot.
const snapshotPrefix = "snp_"

// snapshot is one that lasts.
type snapshot struct {
	store.Snapshot
	frozen
	Labels   map[string]string
	creation string
	users    int // sessions being made from it
	gone     bool

	sumOf     string // of the list of its files; see verify.go
	verifying sync.Mutex
	verified  bool // guarded by verifying
}

// snapshotData is what the store keeps of a snapshot as it is.
type snapshotData struct {
	frozen
	Labels   map[string]string `json:"labels,omitempty"`
	Creation string            `json:"creation,omitempty"`
	Sum      string            `json:"sum,omitempty"`
}

func newSnapshotID() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return snapshotPrefix + hex.EncodeToString(b[:])
}

func (r *Registry) snapshotHome() string { return filepath.Join(r.o.States, "snapshots") }

func noSnapshot(id string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: fmt.Sprintf("there is no snapshot %s", id)}
}

// SnapshotOptions say what snapshot to make.
type SnapshotOptions struct {
	Name     string
	Labels   map[string]string
	Wait     time.Duration
	Creation string // as in OpenOptions
}

// Freeze makes a snapshot of a session, which goes on.
func (r *Registry) Freeze(ctx context.Context, s *Session, o SnapshotOptions) (api.Snapshot, error) {
	snap, err := r.takeSnapshot(ctx, s, o, false)
	if err != nil {
		return api.Snapshot{}, err
	}
	return snap.describe(), nil
}

func (r *Registry) takeSnapshot(ctx context.Context, s *Session, o SnapshotOptions, auto bool) (*snapshot, error) {
	ring := ""
	if auto {
		ring = s.ID
	}
	if err := r.snapshotFits(s.Owner, o.Name, ring); err != nil {
		return nil, err
	}
	id := newSnapshotID()
	dir := filepath.Join(r.snapshotHome(), id)
	wait, explain := r.patience(o.Wait, r.Catalog().Config.Sessions.ForkWait)
	m, err := s.freeze(ctx, dir, wait, toSnapshot)
	if err != nil {
		return nil, explain(err)
	}
	defer m.letGo()
	snap := &snapshot{
		Snapshot: store.Snapshot{
			ID: id, Name: o.Name, Owner: s.Owner, Session: s.ID, Created: time.Now().UTC(),
			Auto: auto, Size: m.size(), Call: m.call, Catalog: m.pin,
		},
		frozen: m.frozen, Labels: o.Labels, creation: o.Creation,
	}
	if err := r.keepSnapshot(ctx, snap); err != nil {
		return nil, err
	}
	e := r.event(s.ID, eventSnapshot, eventData{Snapshot: id})
	e.Call = m.call
	r.note(ctx, e)
	s.Touch()
	return snap, nil
}

// minWeight is what a snapshot counts at least: its record has to be kept too.
const minWeight = 16 << 10

// snapshotFits refuses a name that is taken, and more than the owner may have.
// The ring of a session, which makes room for itself, does not count for it.
func (r *Registry) snapshotFits(owner, name, ring string) error {
	most := r.Catalog().Config.Sessions.Snapshots
	r.mu.Lock()
	defer r.mu.Unlock()
	var size int64
	for _, s := range r.snapshots {
		if s.Owner != owner {
			continue
		}
		if !s.Auto || s.Session != ring {
			size += max(s.Size, minWeight)
		}
		if name != "" && s.Name == name {
			return nameTaken(name)
		}
	}
	if most > 0 && size >= most {
		return &api.Error{
			Kind: api.KindRefused, Status: http.StatusTooManyRequests,
			Message: fmt.Sprintf("your snapshots hold %s and may hold %s; delete some, or have sessions.snapshots raised", bytesText(size), bytesText(most)),
		}
	}
	return nil
}

func nameTaken(name string) error {
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: fmt.Sprintf("there is a snapshot %q already; delete it or choose another name", name)}
}

// keepSnapshot writes a snapshot down and lets it be found, or removes it.
func (r *Registry) keepSnapshot(ctx context.Context, snap *snapshot) error {
	folder := recordOfSnapshot(r.o.States, snap.ID)
	var data []byte
	err := r.sum(ctx, snap)
	if err == nil {
		data, err = json.Marshal(snapshotData{snap.frozen, snap.Labels, snap.creation, snap.sumOf})
	}
	if err == nil {
		snap.Data, snap.Servers = data, r.catalogs.Written(snap.Catalog)
		err = folder.begin(keptSnapshotOf(snap.Snapshot))
	}
	if err == nil {
		// As of a session's record.
		if err = r.o.Shared.PutSnapshot(context.WithoutCancel(ctx), snap.Snapshot); errors.Is(err, store.ErrExists) {
			err = nameTaken(snap.Name)
		}
	}
	if err == nil {
		// A folder that calls itself unfinished is removed where the store has lost the
		// record, so that none may be answered for.
		if err = folder.settle(); err != nil {
			err = errors.Join(err, r.o.Shared.DeleteSnapshot(context.WithoutCancel(ctx), snap.ID))
		}
	}
	if err != nil {
		gone, cancel := afterwards(ctx)
		defer cancel()
		r.discard(gone, &snap.frozen, filepath.Join(r.snapshotHome(), snap.ID))
		return fmt.Errorf("recording the snapshot: %w", err)
	}
	r.mu.Lock()
	r.snapshots[snap.ID] = snap
	r.mu.Unlock()
	return nil
}

func (r *Registry) snapshotByID(id string) *snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshots[id]
}

// useSnapshot keeps a snapshot from being removed until it is given back. Its files were
// verified then.
func (r *Registry) useSnapshot(id string) (giveBack func(), err error) {
	r.mu.Lock()
	snap := r.snapshots[id]
	if snap != nil {
		snap.users++
	}
	r.mu.Unlock()
	if snap == nil {
		return nil, noSnapshot(id)
	}
	giveBack = func() {
		r.mu.Lock()
		snap.users--
		last := snap.users == 0 && snap.gone
		r.mu.Unlock()
		if last {
			r.remove(snap)
		}
	}
	if err := r.verify(snap); err != nil {
		giveBack()
		return nil, err
	}
	return giveBack, nil
}

// Snapshots returns all snapshots, the newest first.
func (r *Registry) Snapshots() []api.Snapshot {
	r.mu.Lock()
	all := make([]*snapshot, 0, len(r.snapshots))
	for _, s := range r.snapshots {
		all = append(all, s)
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *snapshot) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	out := make([]api.Snapshot, 0, len(all))
	for _, s := range all {
		out = append(out, s.describe())
	}
	return out
}

func (s *snapshot) describe() api.Snapshot {
	out := api.Snapshot{
		ID: s.ID, Name: s.Name, Owner: s.Owner, Session: s.Session, Labels: s.Labels, Created: s.Created,
		Auto: s.Auto, Size: s.Size, Servers: []api.SnapshotMember{}, Damaged: s.Damaged,
	}
	if s.Call > 0 {
		out.Call = store.CallID(s.Call)
	}
	for _, m := range s.Members {
		out.Servers = append(out.Servers, api.SnapshotMember{
			Server: m.Server, Driver: m.Snapshot.Driver, Carries: m.Snapshot.Carries, Size: m.Snapshot.Size,
		})
	}
	return out
}

// DeleteSnapshot removes a snapshot by its id. Sessions that were made from it
// stay. Twice is fine.
func (r *Registry) DeleteSnapshot(ctx context.Context, id string) error {
	snap := r.snapshotByID(id)
	if snap == nil {
		return nil
	}
	if err := r.forgetSnapshot(ctx, snap.Snapshot); err != nil {
		return err
	}
	r.mu.Lock()
	snap = r.snapshots[id]
	delete(r.snapshots, id)
	now := false
	if snap != nil {
		snap.gone = true
		now = snap.users == 0
	}
	r.mu.Unlock()
	if now {
		r.remove(snap)
	}
	if snap != nil {
		r.dropServers(ctx, snap.Catalog)
	}
	return nil
}

// forgetSnapshot has a snapshot's folder say that it may be removed, and takes it
// out of the store.
func (r *Registry) forgetSnapshot(ctx context.Context, snap store.Snapshot) error {
	folder := recordOfSnapshot(r.o.States, snap.ID)
	err := folder.markRemoved()
	if err == nil {
		err = r.o.Shared.DeleteSnapshot(ctx, snap.ID)
	}
	if err == nil {
		return nil
	}
	if undo := folder.write(keptSnapshotOf(snap)); undo != nil && !errors.Is(undo, fs.ErrNotExist) {
		err = errors.Join(err, undo)
	}
	return fmt.Errorf("forgetting the snapshot: %w", err)
}

// remove removes what a snapshot consists of.
func (r *Registry) remove(snap *snapshot) {
	ctx, cancel := afterwards(context.Background())
	defer cancel()
	r.discard(ctx, &snap.frozen, filepath.Join(r.snapshotHome(), snap.ID))
}
