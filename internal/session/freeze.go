package session

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/workspace"
)

// frozen is the state of a session at one moment.
type frozen struct {
	Members   []frozenMember    `json:"members"`
	Workspace *workspace.Frozen `json:"workspace,omitempty"`
	// Spaces are the workspaces of further instances, by ordinal.
	Spaces map[int]workspace.Frozen `json:"spaces,omitempty"`
	// Counts says of which servers there are how many instances, where it is not
	// one.
	Counts map[string]int `json:"counts,omitempty"`
	// Shared names the servers whose instance a fork uses too.
	Shared []string `json:"shared,omitempty"`
}

type frozenMember struct {
	Server   string          `json:"server"`
	Snapshot driver.Snapshot `json:"snapshot"`
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
}

// carried tells which members a freeze takes along, or which one refuses it.
func (s *Session) carried() (take []*Entry, shared []string, err error) {
	for _, e := range s.members() {
		if e.driver == nil {
			if whole(s.stateDir(e.ID)) {
				return nil, nil, &api.Error{Kind: api.KindRefused, Server: e.ID, Message: fmt.Sprintf("session %s can't be forked: %s, so what server %q remembers can't be taken along", s.ID, e.problem, e.ID)}
			}
			continue
		}
		mode, why := e.fork()
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
				return nil, nil, &api.Error{Kind: api.KindRefused, Server: e.ID, Message: fmt.Sprintf("session %s can't be forked: %s", s.ID, why)}
			}
		default:
			if whole(s.stateDir(e.ID)) {
				take = append(take, e)
			}
		}
	}
	return take, shared, nil
}

// freeze makes everything in a session stand still for a moment and takes its
// state down into the folder dir, which the result then owns. Calls under way
// are waited for; those that come meanwhile wait until it is over.
func (s *Session) freeze(ctx context.Context, dir string, wait time.Duration) (*moment, error) {
	if _, _, err := s.carried(); err != nil {
		return nil, err // before anybody has to wait
	}
	began := time.Now()
	thaw, err := s.gate.freeze(ctx, wait)
	if err != nil {
		return nil, err
	}
	defer thaw()
	still, cancel := context.WithTimeout(ctx, max(time.Second, wait-time.Since(began)))
	defer cancel()
	instances, release, err := s.holdAll(still)
	if err != nil {
		return nil, err
	}
	defer release()
	m, err := s.capture(ctx, dir, instances)
	if err != nil {
		return nil, err
	}
	m.paused = time.Since(began)
	return m, nil
}

// holdAll keeps every member of the session quiet until release is called: what
// runs is held, nothing starts, and what a reload replaced has ended. It returns
// what runs, by server. The gate is frozen.
func (s *Session) holdAll(ctx context.Context) (running map[string]driver.Instance, release func(), err error) {
	var members []*Entry
	for _, e := range s.members() {
		mode, _ := e.fork()
		if on, _ := e.On(); !on || mode == config.ForkShare {
			continue
		}
		// What has neither state nor part is not worth one; it has nothing to hold.
		if s.Peek(e.ID) != nil || e.Workspace || whole(s.stateDir(e.ID)) {
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
// members are held.
func (s *Session) capture(ctx context.Context, dir string, running map[string]driver.Instance) (*moment, error) {
	take, shared, err := s.carried()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the snapshot: %w", err)
	}
	m := &moment{frozen: frozen{Members: make([]frozenMember, len(take)), Shared: shared}, call: s.r.lastCall()}
	m.Counts = s.counts()
	var spaces []int
	for _, n := range s.spaceOrdinals() {
		if whole(s.stateDir(spaceName(n))) {
			spaces = append(spaces, n)
		}
	}
	var mu sync.Mutex
	err = atOnce(len(take)+len(spaces), func(i int) error {
		if i >= len(take) {
			name := spaceName(spaces[i-len(take)])
			f, err := s.r.o.Workspaces.Freeze(ctx, s.stateDir(name), filepath.Join(dir, name))
			if err != nil {
				return memberError("", "freezing the workspace", err)
			}
			mu.Lock()
			defer mu.Unlock()
			m.setSpace(spaces[i-len(take)], f)
			return nil
		}
		e := take[i]
		spec := e.spec()
		spec.State = s.stateDir(e.ID) // and no session: what comes of it outlasts this one
		snap, err := e.keeper().Freeze(ctx, spec, running[e.ID], filepath.Join(dir, e.ID))
		if err != nil {
			return memberError(e.ID, "freezing its state", err)
		}
		snap.Driver, snap.Server = e.Driver, e.ID
		m.Members[i] = frozenMember{e.ID, snap}
		return nil
	})
	if err != nil {
		gone, cancel := afterwards(ctx)
		defer cancel()
		s.r.discard(gone, &m.frozen, dir)
		return nil, err
	}
	return m, nil
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
func atAll(n int, do func(int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	places := make(chan struct{}, together)
	for i := range n {
		places <- struct{}{}
		if i == n-1 {
			errs[i] = do(i)
			break
		}
		wg.Go(func() {
			errs[i] = do(i)
			<-places
		})
	}
	wg.Wait()
	return errs
}

// discard removes what was frozen.
func (r *Registry) discard(ctx context.Context, f *frozen, dir string) {
	_ = atOnce(len(f.Members), func(i int) error {
		m := f.Members[i]
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
	if err := clone.Remove(dir); err != nil {
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
