package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/torture"
)

// errDead is what a store says after its gateway was killed.
var errDead = errors.New("killed")

// A mortal store dies in one of its transactions, before or after it is written.
type mortal struct {
	store.Agents
	mu    sync.Mutex
	left  int  // transactions until then; zero for never
	after bool // it is written
	dead  bool
}

func (m *mortal) doom(left int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.after = left, after
}

func (m *mortal) doomed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left > 0
}

func (m *mortal) died() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// next counts a transaction, and reports whether it is made, and whether it fails.
func (m *mortal) next() (made, fails bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return false, true
	}
	if m.left > 0 {
		if m.left--; m.left == 0 {
			m.dead = true
			return m.after, true
		}
	}
	return true, false
}

func (m *mortal) ChangeAgents(ctx context.Context, change func(store.AgentTx) error) error {
	made, fails := m.next()
	var err error
	if made {
		err = m.Agents.ChangeAgents(ctx, change)
	}
	if fails {
		return errDead
	}
	return err
}

// A held is a claim as a runner of the model has it.
type held struct {
	runner.Claim
	running bool
	told    int
}

// A model does what callers and runners do, at random, and knows what must be so.
type model struct {
	*rig
	rng      *rand.Rand
	store    *mortal
	accepted map[string]bool
	boxes    [2]struct { // the two runners
		me    runner.Description
		holds []*held
	}
	stale []held
	kills int
}

// TestModel has two runners, callers, lost leases and killed gateways, and then looks
// whether each run that was accepted has ended once, and each callback was told once.
func TestModel(t *testing.T) {
	for seed := range uint64(torture.Or(3, 60)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &model{rng: rand.New(rand.NewPCG(seed, 1)), accepted: make(map[string]bool)}
			bubble(t, func(t *testing.T, r *rig) {
				for i := range m.boxes {
					m.boxes[i].me = runner.Description{ID: fmt.Sprint("box", i), Instance: "0", Executors: []string{"exec"}}
				}
				for range 1500 {
					m.step()
				}
				m.drain()
				m.checkRuns()
				m.checkCallbacks()
				t.Logf("%d runs accepted, %d kills", len(m.accepted), m.kills)
				if m.kills < 10 || len(m.accepted) < 50 {
					t.Error("that is too little to say anything")
				}
			}, func(r *rig) {
				m.rig = r
				r.o.Limits = blueprint.Limits{Depth: 5, Children: 16, Runs: 10000}
				boss := r.book.all["boss"]
				boss.Agents = []string{"*"}
				r.book.all["boss"] = boss
				boss.Retry = true
				r.book.all["hardy"] = boss
				m.renew()
			})
		})
	}
}

// renew has the coordinator that is opened next use a store that lives.
func (m *model) renew() {
	m.store = &mortal{left: 0}
	m.o.Store = m.store
}

// alive brings back a coordinator whose store has died.
func (m *model) alive() {
	if !m.store.died() {
		return
	}
	m.kills++
	m.close()
	m.renew()
	// The database is opened by open, so the store learns of it there.
	m.open()
	if m.rng.IntN(2) == 0 { // the runners are of the same gateway
		for i := range m.boxes {
			m.restart(i)
		}
	}
}

func (m *model) restart(i int) {
	b := &m.boxes[i]
	for _, h := range b.holds {
		m.stale = append(m.stale, *h)
	}
	b.holds = nil
	b.me.Instance = fmt.Sprint(m.rng.Uint64())
}

func (m *model) fine(what string, err error) bool {
	var refused *api.Error
	switch {
	case err == nil:
		return true
	case m.store.died(), errors.Is(err, runner.ErrStale), errors.As(err, &refused) && refused.Kind != api.KindInfrastructure:
	default:
		m.t.Errorf("%s: %v", what, err)
	}
	return false
}

func (m *model) step() {
	m.alive()
	ctx := m.t.Context()
	b := &m.boxes[m.rng.IntN(2)]
	switch n := m.rng.IntN(100); {
	case n < 8:
		who := []identity.Principal{ada, bob}[m.rng.IntN(2)]
		m.accept(who, api.NewRun{Agent: []string{"worker", "boss", "boss", "again", "hardy", "hardy"}[m.rng.IntN(6)], Prompt: "x"})
	case n < 20:
		bosses := slices.DeleteFunc(slices.Clone(b.holds), func(h *held) bool { return !h.running || !strings.Contains("boss hardy", h.Job.Agent.Name) })
		if h := m.pick(bosses); h != nil {
			run := api.Run{ID: h.Run, Session: h.Job.Session, Owner: h.World.Owner}
			mode := []string{api.ModeAsyncCallback, api.ModeAsyncCallback, api.ModeAsyncPoll, api.ModeSync}[m.rng.IntN(4)]
			m.accept(as(run), api.NewRun{Agent: []string{"worker", "again", "hardy"}[m.rng.IntN(3)], Mode: mode})
		}
	case n < 23:
		if page, err := m.Sessions(ctx, otto, Filter{States: []string{api.AgentIdle}, Limit: 20}); m.fine("list", err) && len(page.Sessions) > 0 {
			m.accept(otto, api.NewRun{Session: page.Sessions[m.rng.IntN(len(page.Sessions))].ID, Prompt: "more"})
		}
	case n < 45:
		m.take(b.me, &b.holds)
	case n < 60:
		if h := m.pick(b.holds); h != nil && !h.running {
			m.tell(h, runner.Report{Running: true})
		}
	case n < 66:
		if h := m.pick(b.holds); h != nil {
			m.tell(h, runner.Report{Events: []executor.Event{text(fmt.Sprint(h.told))}})
		}
	case n < 80:
		if h := m.pick(b.holds); h != nil {
			m.end(h)
		}
	case n < 84:
		if len(m.stale) > 0 {
			h := m.stale[m.rng.IntN(len(m.stale))]
			over := m.superseded(h) // otherwise its runner was only restarted
			if _, err := m.Report(ctx, h.Run, h.Number, done("stale")); !m.store.died() && over && !errors.Is(err, runner.ErrStale) {
				m.t.Errorf("a stale report of %s: %v", h.Run, err)
			}
		}
	case n < 86:
		if page, err := m.Runs(ctx, otto, Filter{States: liveStates, Limit: 50}); m.fine("list", err) && len(page.Runs) > 0 {
			_, err := m.Stop(ctx, otto, StopRun{Run: page.Runs[m.rng.IntN(len(page.Runs))].ID})
			m.fine("stop", err)
		}
	case n < 87:
		if page, err := m.Sessions(ctx, otto, Filter{Limit: 50}); m.fine("list", err) && len(page.Sessions) > 0 {
			_, err := m.Shut(ctx, otto, CloseSession{Session: page.Sessions[m.rng.IntN(len(page.Sessions))].ID})
			m.fine("close", err)
		}
	case n < 95:
		later(time.Duration(1+m.rng.IntN(15)) * time.Second)
		m.renewAll()
	case n < 96:
		later(40 * time.Second) // nobody renews
	case n < 97:
		m.restart(m.rng.IntN(2))
	default:
		if !m.store.doomed() {
			m.store.doom(1+m.rng.IntN(4), m.rng.IntN(2) == 0)
		}
	}
	synctest.Wait()
}

func (m *model) pick(holds []*held) *held {
	if len(holds) == 0 {
		return nil
	}
	return holds[m.rng.IntN(len(holds))]
}

func (m *model) accept(who identity.Principal, in api.NewRun) {
	run, err := m.Start(m.t.Context(), who, NewRun{NewRun: in})
	if m.fine("start", err) {
		m.accepted[run.ID] = true
	}
}

func (m *model) take(me runner.Description, holds *[]*held) {
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	var claim runner.Claim
	var err error
	over := make(chan struct{})
	go func() {
		claim, err = m.Claim(ctx, me)
		close(over)
	}()
	synctest.Wait()
	cancel()
	<-over
	if errors.Is(err, context.Canceled) || !m.fine("claim", err) {
		return
	}
	*holds = append(*holds, &held{Claim: claim, running: claim.Adopted && claim.Events > 0, told: claim.Events})
}

// tell reports, and drops a claim that is stale.
func (m *model) tell(h *held, rep runner.Report) bool {
	_, err := m.Report(m.t.Context(), h.Run, h.Number, rep)
	if errors.Is(err, runner.ErrStale) || err == nil && rep.Ended {
		m.dropClaim(h)
	}
	if !m.fine("report", err) {
		return false
	}
	h.running = h.running || rep.Running || len(rep.Events) > 0
	h.told += len(rep.Events)
	return true
}

func (m *model) end(h *held) {
	if m.rng.IntN(4) == 0 {
		m.tell(h, failed("it failed"))
	} else {
		m.tell(h, done("result of "+h.Run))
	}
}

func (m *model) dropClaim(h *held) {
	m.stale = append(m.stale, *h)
	for i := range m.boxes {
		m.boxes[i].holds = slices.DeleteFunc(m.boxes[i].holds, func(o *held) bool { return o == h })
	}
}

func (m *model) renewAll() {
	for i := range m.boxes {
		for _, h := range slices.Clone(m.boxes[i].holds) {
			if _, err := m.Renew(m.t.Context(), h.Run, h.Number); errors.Is(err, runner.ErrStale) {
				m.dropClaim(h)
			}
		}
	}
}

// superseded reports whether a claim is not the last one of its run, or the run is over.
func (m *model) superseded(h held) bool {
	row, ok, err := m.db.Run(m.t.Context(), h.Run)
	if err != nil || !ok {
		m.t.Fatalf("run %s: %v, %v", h.Run, ok, err)
	}
	return row.Claim != h.Number || !readRun(row).claimed()
}

// drain has all that is left end.
func (m *model) drain() {
	m.alive()
	m.store.doom(0, false)
	for range 500 {
		m.alive()
		later(2 * time.Second)
		page := must(m.Runs(m.t.Context(), otto, Filter{States: liveStates, Limit: mostList}))
		if len(page.Runs) == 0 {
			later(longestPause)
			if page = must(m.Runs(m.t.Context(), otto, Filter{States: liveStates, Limit: mostList})); len(page.Runs) == 0 {
				return
			}
		}
		for i := range m.boxes {
			b := &m.boxes[i]
			for range len(page.Runs) {
				m.take(b.me, &b.holds)
			}
			for _, h := range slices.Clone(b.holds) {
				if h.running || m.tell(h, runner.Report{Running: true}) {
					m.tell(h, done("result of "+h.Run))
				}
			}
		}
	}
	m.t.Fatal("runs are left that never end")
}

func (m *model) all() (all []*run) {
	for before := ""; ; {
		page := must(m.db.Runs(m.t.Context(), store.RunFilter{Before: before, Limit: 1000}))
		for _, row := range page {
			all = append(all, readRun(row))
		}
		if len(page) < 1000 {
			return all
		}
		before = page[999].ID
	}
}

// checkRuns: what was accepted is there, and each run has ended once, by moves that there
// are.
func (m *model) checkRuns() {
	there := make(map[string]bool)
	states := make(map[string][]string)
	sessions := make(map[string]bool)
	for _, r := range m.all() {
		there[r.ID] = true
		if !r.ended() {
			m.t.Errorf("run %s is %s", r.ID, r.State)
		}
		if sessions[r.Session] {
			continue
		}
		sessions[r.Session] = true
		for page := (store.FeedPage{}); ; {
			after := int64(0)
			if n := len(page.Events); n > 0 {
				after = page.Events[n-1].N
			}
			page = must(m.db.Feed(m.t.Context(), store.FeedFilter{Session: r.Session, After: after, Limit: 1000}))
			for _, e := range page.Events {
				var d api.RunEvent
				if e.Kind == store.EventRun && json.Unmarshal(e.Data, &d) == nil && d.State != "" {
					states[e.Run] = append(states[e.Run], d.State)
				}
			}
			if len(page.Events) < 1000 {
				break
			}
		}
		sess, ok, err := m.db.AgentSession(m.t.Context(), r.Session)
		if !ok || err != nil || sess.State == api.AgentPending || sess.State == api.AgentRunning {
			m.t.Errorf("session %s is %s (%v)", r.Session, sess.State, err)
		}
	}
	for id := range m.accepted {
		if !there[id] {
			m.t.Errorf("run %s was accepted and is gone", id)
		}
	}
	for id, all := range states {
		was := ""
		for _, state := range all {
			if state != was && !slices.Contains(runMoves[was], state) || api.RunEnded(was) {
				m.t.Errorf("run %s went %v", id, all)
			}
			was = state
		}
		if !api.RunEnded(was) {
			m.t.Errorf("run %s went %v and has not ended", id, all)
		}
	}
}

// checkCallbacks: the end of each run that calls back was told in one run of its parent
// that ran, or waits; a parent that has ended need not have been told.
func (m *model) checkCallbacks() {
	ctx := m.t.Context()
	wants, told := make(map[string]int), make(map[string]int)
	all := m.all()
	for _, r := range all {
		if r.Parent != "" && r.d.Mode == api.ModeAsyncCallback {
			wants[r.Parent+" "+r.Session]++
		}
	}
	carriers, waiting := 0, 0
	for _, r := range all {
		if !r.d.Carries || r.d.Started.IsZero() {
			continue
		}
		carriers++
		for _, part := range strings.Split(r.d.Job.Parameters["prompt"].(string), `<agent-callback session="`)[1:] {
			child, _, _ := strings.Cut(part, `"`)
			told[r.Session+" "+child]++
		}
	}
	for _, cb := range must(m.db.WaitingCallbacks(ctx)) {
		if cb.Parent != "" {
			waiting++
			told[cb.Parent+" "+cb.Child]++
			// What waits has a reason.
			sess := readSession(must2(m.db.AgentSession(ctx, cb.Parent)))
			last := must2(m.db.Run(ctx, sess.d.Run))
			if last.State != api.RunStopped && readCallback(cb).Attempts < deliverTries {
				m.t.Errorf("a callback of %s to %s waits, whose last run is %s", cb.Run, cb.Parent, last.State)
			}
		}
	}
	for pair := range told {
		if told[pair] > wants[pair] {
			m.t.Errorf("%s: told %d times, and %d ended", pair, told[pair], wants[pair])
		}
	}
	for pair, n := range wants {
		parent, _, _ := strings.Cut(pair, " ")
		if told[pair] < n && !readSession(must2(m.db.AgentSession(ctx, parent))).ended() {
			m.t.Errorf("%s: %d ended, and %d are told or wait", pair, n, told[pair])
		}
	}
	m.t.Logf("%d pairs that call back, %d runs that tell, %d callbacks wait", len(wants), carriers, waiting)
}

func must2[T any](v T, _ bool, err error) T { return must(v, err) }
