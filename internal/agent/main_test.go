package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
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
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVar); dir != "" {
		victim(dir, os.Getenv(victimPhase))
	}
	goleak.VerifyTestMain(m)
}

// victimVar makes the test binary a gateway on a folder that is killed in a phase of a run.
const (
	victimVar   = "TINE_TEST_VICTIM"
	victimPhase = "TINE_TEST_PHASE"
)

// book is Blueprints of a map.
type book struct {
	mu       sync.Mutex
	all      map[string]Resolved
	resolve  func(name string, in Input) error // nil for nothing
	inputs   []Input
	finished []api.Run
	closed   []string // sessions whose worlds were closed
	fail     int      // how many of the next hooks and closings fail
}

func (b *book) Resolve(_ context.Context, name string, in Input) (Resolved, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inputs = append(b.inputs, in)
	res, ok := b.all[name]
	if !ok {
		return res, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no agent " + name}
	}
	if b.resolve != nil {
		if err := b.resolve(name, in); err != nil {
			return res, err
		}
	}
	res.Name = name
	res.Parameters = in.Parameters
	res.Scope = maps.Clone(in.Scope)
	return res, nil
}

func (b *book) Finished(_ context.Context, _ []blueprint.Command, run api.Run) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail > 0 {
		b.fail--
		return errors.New("not now")
	}
	b.finished = append(b.finished, run)
	return nil
}

func (b *book) List(context.Context, identity.Principal) ([]api.Agent, error) {
	var all []api.Agent
	for _, name := range slices.Sorted(maps.Keys(b.all)) {
		all = append(all, api.Agent{Name: name, Source: "/agents/" + name})
	}
	return all, nil
}

func (b *book) CloseWorld(_ context.Context, session string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail > 0 {
		b.fail--
		return errors.New("not now")
	}
	b.closed = append(b.closed, session)
	return nil
}

// A rig is a coordinator on a store of its own.
type rig struct {
	*Service
	t    *testing.T
	dir  string
	db   *sqlite.DB
	book *book
	o    Options
}

// newRig makes one that is not open.
func newRig(t *testing.T, dir string) *rig {
	return &rig{t: t, dir: dir, book: &book{all: map[string]Resolved{
		"worker": {Resolved: blueprint.Resolved{Executor: "exec"}},
		"boss":   {Resolved: blueprint.Resolved{Executor: "exec", Agents: []string{"work*", "boss", "prog"}}},
		"prog":   {Resolved: blueprint.Resolved{Executor: "exec"}, Procedural: true},
		"again":  {Resolved: blueprint.Resolved{Executor: "exec", Retry: true}},
	}}}
}

// bubble runs a test with a rig, whose time is the test's.
func bubble(t *testing.T, test func(t *testing.T, r *rig), change ...func(*rig)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dir)
		for _, f := range change {
			f(r)
		}
		r.open()
		defer func() { r.close() }()
		test(t, r)
	})
}

func (r *rig) open() {
	r.t.Helper()
	r.db = sqlitetest.Open(r.t, r.dir)
	o := r.o
	if m, ok := o.Store.(*mortal); ok {
		m.Agents = r.db
	} else {
		o.Store = r.db
	}
	o.Worlds = r.book
	if o.Blueprints == nil {
		o.Blueprints = r.book
	}
	var err error
	if r.Service, err = Open(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) close() {
	r.t.Helper()
	r.Close()
	if err := r.db.Close(); err != nil {
		r.t.Error(err)
	}
}

// again is a restart.
func (r *rig) again() {
	r.t.Helper()
	r.close()
	r.open()
}

var (
	ada  = identity.Principal{Name: "ada", Role: api.RoleUser}
	bob  = identity.Principal{Name: "bob", Role: api.RoleUser}
	vera = identity.Principal{Name: "vera", Role: api.RoleViewer}
	otto = identity.Principal{Name: "otto", Role: api.RoleOperator}
)

// as is the caller that has a run's token.
func as(run api.Run) identity.Principal { return bound(run, run.ID) }

// bound is a caller with a token of a run's session that was made for another run, or
// for none.
func bound(run api.Run, made string) identity.Principal {
	return identity.Principal{Name: run.Owner, Role: api.RoleUser, Session: run.Session, Run: made}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (r *rig) start(who identity.Principal, in api.NewRun) api.Run {
	r.t.Helper()
	run, err := r.Start(r.t.Context(), who, NewRun{NewRun: in})
	if err != nil {
		r.t.Fatalf("start %+v: %v", in, err)
	}
	return run
}

func (r *rig) agent(who identity.Principal, name string) api.Run {
	r.t.Helper()
	return r.start(who, api.NewRun{Agent: name, Prompt: "do it"})
}

// refusedWith checks that an error says something, and is one for callers.
func refusedWith(t *testing.T, err error, kind api.Kind, words string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Message, words) {
		t.Errorf("got %v, want %s %q", err, kind, words)
	}
}

var r1 = runner.Description{ID: "r1", Instance: "1", Executors: []string{"exec"}}

func (r *rig) claim(me runner.Description) runner.Claim {
	r.t.Helper()
	c, err := r.Claim(r.t.Context(), me)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// idle reports whether there is nothing for a runner to claim.
func (r *rig) idle(me runner.Description) bool {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	got := make(chan error, 1)
	go func() {
		_, err := r.Claim(ctx, me)
		got <- err
	}()
	synctest.Wait()
	select {
	case err := <-got:
		if err != nil {
			r.t.Errorf("claim: %v", err)
		}
		return false
	default:
		cancel()
		<-got
		return true
	}
}

func (r *rig) report(c runner.Claim, rep runner.Report) runner.Answer {
	r.t.Helper()
	a, err := r.Report(r.t.Context(), c.Run, c.Number, rep)
	if err != nil {
		r.t.Fatalf("report %+v: %v", rep, err)
	}
	return a
}

// running claims a run, which is the given one, and has it run.
func (r *rig) running(want api.Run) runner.Claim {
	r.t.Helper()
	c := r.claim(r1)
	if c.Run != want.ID {
		r.t.Fatalf("claimed %s of session %s, want %s", c.Run, c.Job.Session, want.ID)
	}
	r.report(c, runner.Report{Running: true})
	return c
}

func done(text string) runner.Report {
	return runner.Report{Ended: true, Result: &api.RunResult{Text: text}}
}

func failed(text string) runner.Report {
	return runner.Report{Ended: true, Error: &api.Error{Kind: api.KindTool, Message: text}}
}

// do has a run run and end.
func (r *rig) do(want api.Run, rep runner.Report) {
	r.t.Helper()
	r.report(r.running(want), rep)
}

func (r *rig) state(id string) string {
	r.t.Helper()
	return must(r.Run(r.t.Context(), otto, id)).State
}

func (r *rig) sessionState(id string) string {
	r.t.Helper()
	return must(r.Session(r.t.Context(), otto, id)).State
}

func (r *rig) check(run api.Run, state, session string) {
	r.t.Helper()
	if got, gotSession := r.state(run.ID), r.sessionState(run.Session); got != state || gotSession != session {
		r.t.Errorf("run %s is %s and its session %s, want %s and %s", run.ID, got, gotSession, state, session)
	}
}

// events are the kinds and data of a run's events.
func (r *rig) events(run api.Run) (all []string) {
	r.t.Helper()
	for _, e := range must(r.db.Feed(r.t.Context(), store.FeedFilter{Run: run.ID, Limit: 1000})).Events {
		var d api.RunEvent
		if err := json.Unmarshal(e.Data, &d); err != nil || e.Session != run.Session || e.Owner != run.Owner || d.Agent != run.Agent {
			r.t.Errorf("event %s of run %s in %s of %q (%v)", e.Data, e.Run, e.Session, e.Owner, err)
		}
		word := d.State
		if word == "" {
			word = d.Type + " " + string(d.Data)
		}
		all = append(all, word)
	}
	return all
}

func text(s string) executor.Event {
	return executor.Event{Type: api.RunEventText, Data: json.RawMessage(fmt.Sprintf("%q", s))}
}

// last is the newest run of a session.
func (r *rig) last(session string) api.Run {
	r.t.Helper()
	return must(r.Runs(r.t.Context(), otto, Filter{Session: session})).Runs[0]
}

// later lets time pass in the bubble.
func later(d time.Duration) {
	time.Sleep(d) // the bubble's time
	synctest.Wait()
}
