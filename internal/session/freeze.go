package session

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/workspace"
)

// frozen is the state of a session at one moment.
type frozen struct {
	Members   []frozenMember    `json:"members"`
	Workspace *workspace.Frozen `json:"workspace,omitempty"`
	// Spaces are the workspaces of further instances, by ordinal.
	Spaces map[int]workspace.Frozen `json:"spaces,omitempty"`
	// Only names the servers that the session was opened with; nil for all.
	Only []string `json:"only,omitempty"`
	// Counts says of which servers there are how many instances, where it is not
	// one.
	Counts map[string]int `json:"counts,omitempty"`
	// Shared names the servers whose instance a fork uses too.
	Shared []string `json:"shared,omitempty"`
	// Used is as in the session's facts.
	Used map[string]bool `json:"used,omitempty"`
	// Damaged is what the session was damaged by at that moment.
	Damaged []api.Damage `json:"damaged,omitempty"`
	// Owed is, by server, what the session had still to be told of that.
	Owed map[string]pendingLoss `json:"owed,omitempty"`
}

type frozenMember struct {
	Server   string          `json:"server"`
	Snapshot driver.Snapshot `json:"snapshot"`
	// Idle says that it neither ran nor was suspended: a session made of it starts
	// it with its first call. It may be one that can't be started at all.
	Idle bool `json:"idle,omitempty"`
	// spare is what it was taken from, which has to be given back; nil where it
	// was made for this alone.
	spare *spare
}

// moveTo has what was frozen lie below a snapshot's folder: its record names it
// by paths of where the state folder was then.
func (f *frozen) moveTo(folder string) {
	move := func(dir *string) {
		if was, name := filepath.Split(*dir); filepath.Base(was) == filepath.Base(folder) {
			*dir = filepath.Join(folder, name)
		}
	}
	for i := range f.Members {
		move(&f.Members[i].Snapshot.Dir)
	}
	if f.Workspace != nil {
		move(&f.Workspace.Dir)
	}
	for n, w := range f.Spaces {
		move(&w.Dir)
		f.Spaces[n] = w
	}
}

func (f *frozen) size() int64 {
	var n int64
	for _, m := range f.Members {
		n += m.Snapshot.Size
	}
	for _, w := range f.spaces() {
		n += w.Size
	}
	return n
}

// spaces are all workspaces, by ordinal.
func (f *frozen) spaces() map[int]workspace.Frozen {
	all := maps.Clone(f.Spaces)
	if f.Workspace == nil {
		return all
	}
	if all == nil {
		all = make(map[int]workspace.Frozen, 1)
	}
	all[0] = *f.Workspace
	return all
}

// setSpace adds a workspace.
func (f *frozen) setSpace(ordinal int, w workspace.Frozen) {
	if ordinal == 0 {
		f.Workspace = &w
		return
	}
	if f.Spaces == nil {
		f.Spaces = make(map[int]workspace.Frozen)
	}
	f.Spaces[ordinal] = w
}

// moment is when a session was frozen.
type moment struct {
	frozen
	call   int64         // the Seq of the last call before it
	paused time.Duration // how long calls had to wait
	pin    string        // the servers that the session had, by their key
	letGo  func()        // of these, which are kept until then
}

// An act is what a session is frozen for, as it is called in a refusal.
type act struct{ verb, done string }

var (
	toFork     = act{"fork", "forked"}
	toSnapshot = act{"snapshot", "snapshotted"}
)

// carried tells which members a freeze takes along, or which one refuses it.
func (s *Session) carried(to act) (take []*catalog.Entry, shared []string, err error) {
	if err := s.notItsOwn(to); err != nil {
		return nil, nil, err
	}
	for _, e := range s.members() {
		if e.Runner == nil {
			if s.hasState(e.ID) {
				return nil, nil, &api.Error{Kind: api.KindRefused, Server: e.ID, Message: fmt.Sprintf("session %s can't be %s: %s, so what server %q remembers can't be taken along", s.ID, to.done, e.Problem, e.ID)}
			}
			continue
		}
		mode, why := e.ForkMode()
		switch mode {
		case config.ForkFresh:
		case config.ForkShare:
			if e.Workspace {
				return nil, nil, &api.Error{Kind: api.KindRefused, Server: e.ID, Message: fmt.Sprintf("server %q can't be shared with a fork: it works in the workspace, of which each has its own; set servers.%s.fork to files or fresh", e.ID, e.ID)}
			}
			shared = append(shared, e.ID)
		case config.ForkRefuse:
			// What was never started has nothing to lose.
			if up := s.Peek(e.ID); up != nil && up.Started() {
				return nil, nil, &api.Error{Kind: api.KindRefused, Server: e.ID, Message: fmt.Sprintf("session %s can't be %s: %s", s.ID, to.done, why)}
			}
		default:
			if s.hasState(e.ID) {
				take = append(take, e)
			}
		}
	}
	return take, shared, nil
}

// freeze makes everything in a session stand still for a moment and takes its
// state down into the folder dir, which the result then owns. Running calls are
// waited for; calls that come meanwhile wait until it is over. For a fork,
// members that did nothing since they were copied ahead of time are not frozen
// again.
func (s *Session) freeze(ctx context.Context, dir string, wait time.Duration, to act) (*moment, error) {
	if _, _, err := s.carried(to); err != nil {
		return nil, err // before any call has to wait
	}
	began := time.Now()
	thaw, err := s.quiet(ctx, wait)
	if err != nil {
		return nil, err
	}
	defer thaw()
	still, cancel := context.WithTimeout(ctx, max(time.Second, wait-time.Since(began)))
	defer cancel()
	// No call runs, so a member that is as it was copied stays that way and need not be held.
	var ready map[string]*spare
	if to == toFork {
		ready = s.useSpares()
	}
	instances, release, err := s.holdAll(still, ready)
	if err != nil {
		s.releaseAll(ready)
		return nil, err
	}
	defer release()
	m, err := s.capture(ctx, dir, instances, ready, to)
	s.releaseAll(ready) // those that were not used
	if err != nil {
		return nil, err
	}
	if m.pin, m.letGo, err = s.keepServers(); err != nil {
		gone, cancel := afterwards(ctx)
		defer cancel()
		s.r.discard(gone, &m.frozen, dir)
		return nil, err
	}
	m.paused = time.Since(began)
	return m, nil
}

// keepServers pins the servers of the session, and keeps them until they are let go of.
func (s *Session) keepServers() (pin string, letGo func(), err error) {
	if pin = s.pinned(); pin != "" {
		return pin, s.r.catalogs.Keep(pin), nil
	}
	cat := s.Catalog()
	letGo = s.r.catalogs.Keep(cat.Key())
	if pin, err = s.r.catalogs.Pin(cat); err != nil {
		letGo()
		return "", nil, err
	}
	return pin, letGo, nil
}

// quiet waits until no call runs and keeps others out until thaw is called. After
// a second it says in the log what it waits for: the call may itself have asked
// for it.
func (s *Session) quiet(ctx context.Context, wait time.Duration) (thaw func(), err error) {
	waits := time.AfterFunc(time.Second, func() {
		s.r.o.Log.Info("a fork, snapshot or rewind waits for running calls", "session", s.ID, "waits_for", s.gate.oldest())
	})
	defer waits.Stop()
	return s.gate.freeze(ctx, wait)
}

// holdAll keeps every member of the session quiet until release is called: what
// runs is held, nothing starts, and what a reload replaced has ended. It returns
// what runs, by server. The gate is frozen. Those in except are left out.
func (s *Session) holdAll(ctx context.Context, except map[string]*spare) (running map[string]driver.Instance, release func(), err error) {
	var members []*catalog.Entry
	for _, e := range s.members() {
		mode, _ := e.ForkMode()
		if on, _ := e.On(); !on || mode == config.ForkShare || except[e.ID] != nil {
			continue
		}
		// What has neither state nor part is not worth one; it has nothing to hold.
		if s.Peek(e.ID) != nil || e.Workspace || s.hasState(e.ID) {
			members = append(members, e)
		}
	}
	instances, releases := make([]driver.Instance, len(members)), make([]func(), len(members))
	release = func() {
		for _, free := range releases {
			if free != nil {
				free()
			}
		}
	}
	err = atOnce(len(members), func(i int) error {
		if err := s.r.waitEnded(ctx, members[i], s); err != nil {
			return err
		}
		up, _, err := s.Upstream(members[i].ID) // nothing is started by that
		if err == nil && members[i].Carry() == driver.CarryFiles {
			err = up.Save(ctx) // what it has in memory alone
		}
		if err == nil {
			instances[i], releases[i], err = up.Hold(ctx)
		}
		return err
	})
	if err != nil {
		release()
		return nil, nil, err
	}
	running = make(map[string]driver.Instance, len(members))
	for i, e := range members {
		if instances[i] != nil {
			running[e.ID] = instances[i]
		}
	}
	return running, release, nil
}

// capture takes down the state of a session whose gate is frozen and whose
// members are held, except for the ready ones, which it takes from ready.
func (s *Session) capture(ctx context.Context, dir string, running map[string]driver.Instance, ready map[string]*spare, to act) (*moment, error) {
	take, shared, err := s.carried(to)
	if err != nil {
		return nil, err
	}
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	m := &moment{frozen: frozen{Members: make([]frozenMember, len(take)), Only: s.servers, Shared: shared}, call: s.r.lastCall()}
	now := s.known()
	m.Counts, m.Damaged, m.Owed, m.Used = s.counts(), now.Damaged, now.Owed, now.Used
	var spaces []int
	for _, n := range s.spaceOrdinals() {
		if s.hasState(spaceName(n)) {
			spaces = append(spaces, n)
		}
	}
	var mu sync.Mutex
	err = atOnce(len(take)+len(spaces), func(i int) error {
		if i >= len(take) {
			name := spaceName(spaces[i-len(take)])
			f, err := s.r.o.Workspaces.Freeze(ctx, s.stateDir(name), filepath.Join(dir, name))
			if err != nil {
				err = driver.DamagedState(driver.Whose{Session: s.ID}, err)
				s.noteDamage("", err)
				return memberError("", "freezing the workspace", err)
			}
			mu.Lock()
			defer mu.Unlock()
			m.setSpace(spaces[i-len(take)], f)
			return nil
		}
		e := take[i]
		mu.Lock()
		sp := ready[e.ID]
		delete(ready, e.ID)
		mu.Unlock()
		if sp != nil {
			m.Members[i] = frozenMember{Server: e.ID, Snapshot: *sp.snap, spare: sp}
			return nil
		}
		snap, err := s.freezeMember(ctx, e, running[e.ID], filepath.Join(dir, e.ID))
		m.Members[i] = frozenMember{Server: e.ID, Snapshot: snap, Idle: running[e.ID] == nil && len(snap.Hello) == 0}
		return err
	})
	if err != nil {
		gone, cancel := afterwards(ctx)
		defer cancel()
		s.r.discard(gone, &m.frozen, dir)
		return nil, err
	}
	return m, nil
}

// makeFolder makes the folder of a snapshot, which is not finished yet. Those
// that never last say so by their names.
func makeFolder(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil && strings.HasPrefix(filepath.Base(dir), snapshotPrefix) {
		err = (folderRecord{dir, snapshotRecord}).begin(nil)
	}
	if err != nil {
		return fmt.Errorf("making the folder of the snapshot: %w", err)
	}
	return nil
}

// freezeMember takes down the state of one member. inst is what runs, and held;
// nil for nothing.
func (s *Session) freezeMember(ctx context.Context, e *catalog.Entry, inst driver.Instance, dir string) (driver.Snapshot, error) {
	spec := e.Spec()
	spec.State = s.stateDir(e.ID) // and no session: what comes of it outlasts this one
	spec.Carry = e.Carry()
	spec.OnDamage = func(err error) { s.noteDamage(e.ID, err) }
	if inst == nil {
		mark, _ := s.r.marked(s, spec.State)
		if err := vanished(driver.Whose{Server: e.ID, Session: s.ID}, spec.State, mark); err != nil {
			s.noteDamage(e.ID, err)
			return driver.Snapshot{}, err
		}
	}
	return freezeState(ctx, e, spec, s.Peek(e.ID), inst, dir)
}

// freezeState takes down the state of a server. Where its memory is in it, the
// server's answer to the handshake goes with it: an instance made of it needs
// none.
func freezeState(ctx context.Context, e *catalog.Entry, spec driver.Spec, up *upstream.Upstream, inst driver.Instance, dir string) (driver.Snapshot, error) {
	snap, err := e.Keeper().Freeze(ctx, spec, inst, dir)
	if err != nil {
		return driver.Snapshot{}, memberError(e.ID, "freezing its state", err)
	}
	snap.Driver, snap.Server = e.Driver, e.ID
	if snap.Carries == driver.CarryMemory && len(snap.Hello) == 0 && up != nil {
		snap.Hello = up.Greeting(inst)
	}
	return snap, nil
}

// atOnce does n things at once and returns the first error. The common case of
// one or two costs no more than doing them.
func atOnce(n int, do func(int) error) error {
	for _, err := range atAll(n, do) {
		if err != nil {
			return err
		}
	}
	return nil
}

// together is how many things are done at once for the members of a session, of
// which there may be thousands.
const together = 64

// atAll does n things at once and returns the error of each.
func atAll(n int, do func(int) error) []error { return atMost(together, n, do) }

// atMost is atAll with so many of them at once.
func atMost(most, n int, do func(int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	var caught panics
	places := make(chan struct{}, most)
	for i := range n {
		places <- struct{}{}
		if i == n-1 {
			func() {
				defer caught.catch()
				errs[i] = do(i)
			}()
			break
		}
		wg.Go(func() {
			defer func() { <-places }()
			defer caught.catch()
			errs[i] = do(i)
		})
	}
	wg.Wait()
	caught.raise()
	return errs
}

// discard removes what was frozen.
func (r *Registry) discard(ctx context.Context, f *frozen, dir string) {
	_ = atOnce(len(f.Members), func(i int) error {
		m := f.Members[i]
		if m.spare != nil {
			r.stock.release(m.spare)
			return nil
		}
		k, _ := r.o.Drivers[m.Snapshot.Driver].(driver.Keeper)
		if k == nil { // also where it was never made
			return nil
		}
		if err := k.Discard(ctx, m.Snapshot); err != nil {
			r.o.Log.Warn("snapshot not removed", "server", m.Server, "err", err)
		}
		return nil
	})
	for _, w := range f.spaces() {
		if err := r.o.Workspaces.Discard(ctx, w); err != nil {
			r.o.Log.Warn("snapshot of a workspace not removed", "err", err)
		}
	}
	if err := (folderRecord{dir, snapshotRecord}).removeAll(); err != nil {
		r.o.Log.Warn("folder of a snapshot not removed", "folder", dir, "err", err)
	}
}

// lastCall is the Seq of the last call in the journal.
func (r *Registry) lastCall() int64 {
	if j := r.o.Record.Journal; j != nil {
		return j.Last()
	}
	return 0
}
