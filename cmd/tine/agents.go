package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/claudecode"
	"github.com/tine-mcp/tine/internal/agent/executor/codex"
	"github.com/tine-mcp/tine/internal/agent/executor/command"
	"github.com/tine-mcp/tine/internal/agent/executor/procedural"
	"github.com/tine-mcp/tine/internal/agent/hook"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/driver/folder"
	front "github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/store"
)

// offer is what this machine can do: the executors of the config, and one of each type that
// has the type's name.
func offer(of config.Agents) runner.Offer {
	o := runner.Offer{Tags: of.Tags, Concurrency: of.Concurrency}
	if o.Concurrency == 0 {
		o.Concurrency = -1 // other runners do them
	}
	for _, name := range of.ExecutorNames() {
		e, _ := of.ExecutorNamed(name)
		o.Executors = append(o.Executors, executorOf(e))
	}
	return o
}

func executorOf(e config.Executor) executor.Executor {
	o := executor.Options{Name: e.Name, Program: executor.Program{Command: e.Command, Args: e.Args, Env: e.Env}, Getenv: os.Getenv}
	switch e.Type {
	case config.ExecutorProcedural:
		return procedural.New(o)
	case config.ExecutorClaudeCode:
		return claudecode.New(o)
	case config.ExecutorCodex:
		return codex.New(o)
	}
	return command.New(o)
}

func bounds(of config.Agents) agent.Bounds {
	return agent.Bounds{
		Limits: blueprint.Limits{Depth: of.Depth, Children: of.Children, Runs: of.Runs, Time: of.Time},
		Match:  of.Match, Lease: of.Lease, Idle: of.Idle, Keep: of.Keep,
	}
}

// settingsOf holds executor_config against what the executor of a name knows. The name is
// checked by itself.
func settingsOf(of config.Agents) func(name string, settings map[string]any) error {
	return func(name string, settings map[string]any) error {
		if e, ok := of.ExecutorNamed(name); ok {
			return executorOf(e).Check(settings)
		}
		return nil
	}
}

// agents are the coordinator of a gateway, and the runner of its machine.
type agents struct {
	book     *agent.Book
	service  *agent.Service
	runner   *runner.Runner
	worlds   *worlds
	store    store.Agents
	sessions store.Sessions
	log      *slog.Logger

	mu      sync.Mutex
	closed  []string // sessions that have ended, which the coordinator does not know yet
	readmit bool     // the coordinator is to look who may come in
	wake    chan struct{}
}

// newAgents brings back the agents of a state folder. Nothing runs before run.
func newAgents(ctx context.Context, p *service, id string) (_ *agents, err error) {
	current := func() *config.Config { return p.registry.Catalog().Config }
	of := p.cfg.Agents
	dir := filepath.Join(p.o.State, "agents")
	if err := folder.Make(dir); err != nil {
		return nil, err
	}
	hooks, err := hook.New(hook.Options{Dir: filepath.Join(dir, "hooks"), Log: p.o.Log})
	if err != nil {
		return nil, err
	}
	var forgot sync.Once
	secret := func(values []string) {
		if p.o.Redact.LearnOfRun(values) {
			forgot.Do(func() {
				p.o.Log.Warn("runs of agents had more secrets than are remembered; listings of old calls may show those of runs long ago")
			})
		}
	}
	a := &agents{store: p.store, sessions: p.store, log: p.o.Log, wake: make(chan struct{}, 1), worlds: &worlds{base: p.local, ready: make(chan struct{})}}
	a.book = agent.NewBook(agent.BookOptions{
		Store: blueprint.NewStore(func() blueprint.Folders { return blueprint.Folders(current().AgentDirs()) }, agent.Documents(p.store)),
		Hooks: hooks, Agents: func() config.Agents { return current().Agents }, Getenv: os.LookupEnv,
		Servers: func() (ids []string) {
			for _, s := range current().Servers {
				ids = append(ids, s.ID)
			}
			return ids
		},
		Starts: func(owner string, pinned []byte, server string) bool {
			return p.registry.Catalog().MayStart(owner, pinned, server)
		},
		Settings: func(name string, settings map[string]any) error { return settingsOf(current().Agents)(name, settings) },
		Secret:   secret, Log: p.o.Log,
	})
	a.service, err = agent.Open(ctx, agent.Options{
		Store: p.store, Blueprints: a.book, Worlds: a,
		Bounds: bounds(of), Admits: a.worlds.admits,
		Secret: secret, Told: func([]store.Event) { p.hub.Wrote() }, Tracing: p.tracing, Log: p.o.Log,
	})
	if err != nil {
		return nil, err
	}
	a.runner, err = runner.New(runner.Options{
		Queue: a.service, Worlds: a.worlds, Offer: offer(of), Me: runner.Description{ID: id},
		API: func(token string) string { return front.ExecutorURL(p.local, token) },
		Dir: dir, Environ: os.Environ(), Log: p.o.Log,
	})
	if err != nil {
		a.service.Close()
		return nil, err
	}
	for _, x := range offer(of).Executors {
		for _, value := range x.Secrets() {
			p.o.Redact.Learn(value)
		}
	}
	return a, nil
}

// change puts what a config says of agents in the place of what the one before it said.
func (a *agents) change(of config.Agents) error {
	a.service.Change(bounds(of))
	return a.runner.Change(offer(of))
}

// run does runs until ctx ends.
func (a *agents) run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { a.hear(ctx) })
	a.runner.Run(ctx)
}

// close ends the runs, or leaves their programs to the next gateway.
func (a *agents) close(keep bool) {
	a.runner.Close(keep)
	a.service.Close()
}

// sessionClosed has the agent of a session end with it. It does not wait.
func (a *agents) sessionClosed(session string) {
	a.note(func() { a.closed = append(a.closed, session) })
}

// readmitPause is how long to wait after a look at the owners of runs that failed.
const readmitPause = 5 * time.Second

// readmitted has the agents stop of those who may not come in any more. It does not wait.
func (a *agents) readmitted() {
	a.note(func() { a.readmit = true })
}

func (a *agents) note(what func()) {
	a.mu.Lock()
	what()
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// hear tells the coordinator which sessions have ended, and that others may come in.
func (a *agents) hear(ctx context.Context) {
	a.missed(ctx)
	a.readmitted() // also by what was changed while no gateway was there
	for {
		select {
		case <-a.wake:
		case <-ctx.Done():
			return
		}
		a.mu.Lock()
		closed, readmit := a.closed, a.readmit
		a.closed, a.readmit = nil, false
		a.mu.Unlock()
		for _, session := range closed {
			a.tell(ctx, session)
		}
		if readmit {
			if err := a.service.Readmit(ctx); err != nil && ctx.Err() == nil {
				a.log.Warn("runs may go on whose owner may not come in any more; they are looked at again", "after", readmitPause, "err", err)
				time.AfterFunc(readmitPause, a.readmitted)
			}
		}
	}
}

// missed tells the coordinator of sessions that ended in the moment in which an earlier
// gateway was killed, or while none was there.
func (a *agents) missed(ctx context.Context) {
	f := store.AgentFilter{States: []string{api.AgentPending, api.AgentRunning, api.AgentIdle}, Limit: 200}
	for {
		page, err := a.store.AgentSessions(ctx, f)
		if err != nil {
			if ctx.Err() == nil {
				a.log.Warn("the agents of sessions that were closed are not told so", "err", err)
			}
			return
		}
		for _, s := range page {
			if was, ok, err := a.sessions.Session(ctx, s.ID); err == nil && ok && !was.Closed.IsZero() {
				a.tell(ctx, s.ID)
			}
		}
		if len(page) < f.Limit {
			return
		}
		f.Before = page[len(page)-1].ID
	}
}

func (a *agents) tell(ctx context.Context, session string) {
	if err := a.service.WorldClosed(ctx, session); err != nil && ctx.Err() == nil {
		a.log.Warn("the agent of a session that was closed is not told so", "session", session, "err", err)
	}
}

// CloseWorld implements agent.Worlds.
func (a *agents) CloseWorld(ctx context.Context, session string) error {
	w, err := a.worlds.control(ctx)
	if err != nil {
		return err
	}
	if err := a.runner.EndSession(ctx, session); err != nil {
		return err
	}
	s, ok, err := a.store.AgentSession(ctx, session)
	if err != nil || !ok {
		return err
	}
	return w.Close(ctx, session, s.Owner)
}

// worlds are the sessions of agents at a gateway, which is made last.
type worlds struct {
	base    string // of the gateway's URLs
	ready   chan struct{}
	gateway *front.Gateway
}

var _ runner.Worlds = (*worlds)(nil)

// set names the gateway.
func (w *worlds) set(g *front.Gateway) {
	w.gateway = g
	close(w.ready)
}

func (w *worlds) control(ctx context.Context) (*control.Worlds, error) {
	select {
	case <-w.ready:
		return w.gateway.Worlds(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// admits reports whether the owner of a session may come in.
func (w *worlds) admits(ctx context.Context, owner string, pinned json.RawMessage) (bool, error) {
	if _, err := w.control(ctx); err != nil {
		return false, err
	}
	return w.gateway.Admits(owner, pinned), nil
}

// Open implements runner.Worlds.
func (w *worlds) Open(ctx context.Context, in runner.World) error {
	c, err := w.control(ctx)
	if err != nil {
		return err
	}
	return c.Open(ctx, control.World{
		Session: in.Session, Owner: in.Owner, Pinned: in.Pinned, Labels: in.Labels, From: in.From,
		Servers: in.Servers, Inline: in.Inline, Made: in.Made, Parent: in.Parent,
	})
}

// Mint implements runner.Worlds.
func (w *worlds) Mint(ctx context.Context, session, run string, servers []string, ttl time.Duration) (string, error) {
	c, err := w.control(ctx)
	if err != nil {
		return "", err
	}
	return c.Mint(ctx, session, run, servers, ttl)
}

// Revoke implements runner.Worlds.
func (w *worlds) Revoke(ctx context.Context, session, run string) error {
	c, err := w.control(ctx)
	if err != nil {
		return err
	}
	return c.Revoke(ctx, session, run)
}

// URL implements runner.Worlds.
func (w *worlds) URL(session, server string) string {
	return w.base + "/s/" + session + "/mcp/" + server
}
