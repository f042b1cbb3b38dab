package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// agentGroup is the group of rows about runs of agents.
const agentGroup = "agents"

// aimBegun is how many ms more than a bare spawn it takes until a run's program has
// started, fewer than.
const aimBegun = 20

// agentTrials is every row about agents, in the order of the report.
func agentTrials() []*trial {
	rows := []*trial{
		{
			Name: "rate", About: "runs whose program exits at once, sixteen at a time, the time of one; against bare spawns of the same program",
			run: (*trials).runRate,
		},
		{
			Name: "start", About: "from the request until the program of the run has started, against a bare spawn of it",
			limits: []limit{{"p50 in ms over a bare spawn, absolute", aimBegun, true, overMS}}, run: (*trials).runStart,
		},
		{
			Name: "crowd", About: "so many agents at once, each with a session, until all are done; and the most memory of the gateway meanwhile",
			run: (*trials).runCrowd,
		},
		{
			Name: "call", About: "a call with the token of a run, against one with a user's in a session of that user",
			limits: []limit{{"p50, the same", aimSame, false, ratioP50}}, run: (*trials).runCall,
		},
	}
	for _, r := range rows {
		r.Group, r.needs = agentGroup, needShell
	}
	return rows
}

func needShell(context.Context, settings) error {
	if runtime.GOOS == "windows" {
		return errors.New("agents are not measured on Windows")
	}
	_, err := exec.LookPath("sh")
	return err
}

// The agents: their executors are scripts of the shell, which are given the path of a FIFO.
const (
	agentNoop   = "noop"  // exits at once
	agentSays   = "says"  // writes a byte to the FIFO
	agentWaits  = "waits" // writes its document to the FIFO, and waits until the other one is closed
	userToken   = "token-of-a-user-0123456789"
	runsInRound = 64
	manyAgents  = 500
)

var agentScripts = map[string]string{
	agentNoop:  "exit 0\n",
	agentSays:  "echo >\"$1\"\n",
	agentWaits: "cat >\"$1\"\nread -r end <\"$2\"\n",
}

// agents is a gateway with these agents.
type agents struct {
	*world
	dir     string
	said    *os.File // the FIFOs, which the harness holds open
	waiting *os.File
}

// agentWorld starts one. With an upstream, the agent that waits has it as its server.
func (t *trials) agentWorld(ctx context.Context, name, upstream string) (_ *agents, err error) {
	a := &agents{dir: filepath.Join(t.g.dir, name)}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, err
	}
	if a.said, err = openFIFO(filepath.Join(a.dir, "said")); err != nil {
		return nil, err
	}
	if a.waiting, err = openFIFO(filepath.Join(a.dir, "waiting")); err != nil {
		return nil, err
	}
	executors := map[string]any{}
	for agent, script := range agentScripts {
		command, args := a.program(agent)
		executors[agent] = map[string]any{"type": "command", "command": command, "args": args}
		blueprint := map[string]any{"executor": agent}
		if agent == agentWaits && upstream != "" {
			blueprint["mcp_servers"] = map[string]any{serverName: map[string]any{}}
		}
		text, err := json.Marshal(blueprint)
		if err != nil {
			return nil, err
		}
		at := filepath.Join(a.dir, "agents", agent)
		if err := os.MkdirAll(at, 0o700); err != nil {
			return nil, err
		}
		for path, text := range map[string]string{args[0]: script, filepath.Join(at, "agent.json"): string(text)} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
	}
	keys := map[string]any{"agents": map[string]any{"executors": executors}, "sessions": unbounded()}
	if upstream != "" {
		keys["servers"] = map[string]serverEntry{serverName: {URL: upstream}}
		keys["auth"] = map[string]any{"tokens": []any{map[string]any{"name": "ada", "token": userToken, "role": api.RoleUser}}}
	}
	a.world, err = t.g.newWorld(ctx, name, keys)
	return a, err
}

func (a *agents) end() {
	a.gate.stop()
	a.said.Close()
	a.waiting.Close()
}

// openFIFO makes one and holds it open at both ends, so that no other end is waited for.
func openFIFO(path string) (*os.File, error) {
	if err := makeFIFO(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// program is the command that an agent of these rows runs.
func (a *agents) program(agent string) (command string, args []string) {
	return "sh", []string{filepath.Join(a.dir, agent+".sh"), a.said.Name(), a.waiting.Name()}
}

// spawn runs the program of an agent as anybody would who keeps what it writes.
func (a *agents) spawn(ctx context.Context, agent, dir string) error {
	command, args := a.program(agent)
	cmd := exec.CommandContext(ctx, command, args...)
	in := filepath.Join(dir, "stdin")
	if err := os.WriteFile(in, []byte("{}\n"), 0o600); err != nil {
		return err
	}
	for name, to := range map[string]func(*os.File){
		"stdin": func(f *os.File) { cmd.Stdin = f }, "stdout": func(f *os.File) { cmd.Stdout = f }, "stderr": func(f *os.File) { cmd.Stderr = f },
	} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		to(f)
	}
	return cmd.Run()
}

// spawned runs the program of an agent in a folder of its own.
func (a *agents) spawned(ctx context.Context, agent string) error {
	dir, err := os.MkdirTemp(a.dir, "bare-")
	if err == nil {
		err = a.spawn(ctx, agent, dir)
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	return err
}

func (a *agents) start(ctx context.Context, agent string) (*api.Run, error) {
	run, err := a.client.StartRun(ctx, api.NewRun{Agent: agent, Prompt: "go"})
	if err != nil {
		return nil, a.gate.explain(fmt.Errorf("start agent %s: %w", agent, err))
	}
	return run, nil
}

// ended waits for the end of a run, which must have completed.
func (a *agents) ended(ctx context.Context, run *api.Run) error {
	for !api.RunEnded(run.State) {
		var err error
		if run, err = a.client.Run(ctx, run.ID, time.Minute); err != nil {
			return a.gate.explain(err)
		}
	}
	if run.State != api.RunCompleted {
		return fmt.Errorf("run %s is %s: %v", run.ID, run.State, run.Error)
	}
	return nil
}

// runRate times many runs, and as many bare spawns.
func (t *trials) runRate(ctx context.Context) ([]reading, error) {
	a, err := t.agentWorld(ctx, "agents-rate", "")
	if err != nil {
		return nil, err
	}
	defer a.end()
	n := min(runsInRound, t.s.MaxCalls)
	many := func(do func(context.Context) error) timed {
		return func() ([]time.Duration, error) {
			began := time.Now()
			err := each(ctx, n, func(ctx context.Context, _ int) error { return do(ctx) })
			return []time.Duration{time.Since(began) / time.Duration(n)}, err
		}
	}
	c := &contest{
		shows: showsRate,
		floor: &side{&series{name: "bare spawn"}, many(func(ctx context.Context) error { return a.spawned(ctx, agentNoop) })},
		ours: []*side{{&series{name: "run"}, many(func(ctx context.Context) error {
			run, err := a.start(ctx, agentNoop)
			if err == nil {
				err = a.ended(ctx, run)
			}
			return err
		})}},
	}
	return c.rounds(t.s.Rounds)
}

// runStart times how long it takes until a program has started.
func (t *trials) runStart(ctx context.Context) ([]reading, error) {
	a, err := t.agentWorld(ctx, "agents-start", "")
	if err != nil {
		return nil, err
	}
	defer a.end()
	said := func() error {
		_, err := a.said.Read(make([]byte, 1))
		return err
	}
	several := func(do func() (finish func() error, err error)) timed {
		return func() (times []time.Duration, err error) {
			for range min(samples, t.s.MaxCalls) {
				began := time.Now()
				finish, err := do()
				if err == nil {
					err = said()
				}
				times = append(times, time.Since(began))
				if err == nil {
					err = finish()
				}
				if err != nil {
					return nil, err
				}
			}
			return times, nil
		}
	}
	c := &contest{
		shows: showsBegun,
		floor: &side{&series{name: "bare spawn"}, several(func() (func() error, error) {
			done := make(chan error, 1)
			go func() { done <- a.spawned(ctx, agentSays) }()
			return func() error { return <-done }, nil
		})},
		ours: []*side{{&series{name: "run"}, several(func() (func() error, error) {
			run, err := a.start(ctx, agentSays)
			return func() error { return a.ended(ctx, run) }, err
		})}},
	}
	return c.rounds(t.s.Rounds)
}

// runCrowd starts many agents at once.
func (t *trials) runCrowd(ctx context.Context) ([]reading, error) {
	a, err := t.agentWorld(ctx, "agents-crowd", "")
	if err != nil {
		return nil, err
	}
	defer a.end()
	first, err := a.start(ctx, agentNoop)
	if err == nil {
		err = a.ended(ctx, first)
	}
	if err != nil {
		return nil, err
	}
	before, err := a.settled(ctx)
	if err != nil {
		return nil, err
	}
	n := min(manyAgents, t.s.Sessions)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var most atomic.Int64
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for watching.Err() == nil {
			most.Store(max(most.Load(), usageOf(a.gate.pid()).anon))
			select {
			case <-time.After(20 * time.Millisecond):
			case <-watching.Done():
			}
		}
	}()
	runs := make([]*api.Run, n)
	began := time.Now()
	err = allAtOnce(n, func(i int) (err error) { runs[i], err = a.start(ctx, agentNoop); return err })
	accepted := time.Since(began)
	if err == nil {
		err = each(ctx, n, func(ctx context.Context, i int) error { return a.ended(ctx, runs[i]) })
	}
	took := time.Since(began)
	stop()
	<-watched
	if err != nil {
		return nil, err
	}
	after, err := a.settled(ctx)
	if err != nil {
		return nil, err
	}
	list, err := a.client.AgentSessions(ctx, client.AgentSessionQuery{State: []string{api.AgentIdle}, Limit: 1000})
	if err != nil {
		return nil, err
	}
	if len(list.Sessions) != n+1 {
		return nil, fmt.Errorf("%d sessions of agents are idle, want %d", len(list.Sessions), n+1)
	}
	return []reading{
		{Case: fmt.Sprintf("%d accepted", n), Total: accepted, Sessions: n, shows: showsAgents},
		{Case: fmt.Sprintf("%d done", n), Total: took, Anon: most.Load(), Sessions: n, Each: (after - before) / int64(n), shows: showsAgents},
	}, nil
}

// runCall times calls with a run's token and with a user's.
func (t *trials) runCall(ctx context.Context) (out []reading, err error) {
	_, at, err := t.g.role(ctx, "echo-stateless", "agents-echo", false)
	if err != nil {
		return nil, err
	}
	a, err := t.agentWorld(ctx, "agents-call", "http://"+at.Addr+"/mcp")
	if err != nil {
		return nil, err
	}
	defer a.end()
	if _, err := a.start(ctx, agentWaits); err != nil {
		return nil, err
	}
	var job struct {
		Agent struct {
			Servers map[string]struct {
				URL     string
				Headers map[string]string
			} `json:"mcp_servers"`
		} `json:"agent_blueprint"`
	}
	if err := json.NewDecoder(a.said).Decode(&job); err != nil {
		return nil, err
	}
	server := job.Agent.Servers[serverName]
	user, err := a.client.As(userToken)
	if err != nil {
		return nil, err
	}
	plain, err := user.OpenSession(ctx, api.NewSession{})
	if err != nil {
		return nil, err
	}
	to := func(name, url, bearer string, callers int) *side {
		return &side{&series{name: fmt.Sprintf("%s, %d at once", name, callers)}, t.called(ctx, statelessEra, url, bearer, callers)}
	}
	for _, n := range t.s.Callers {
		c := &contest{
			shows: showsTail,
			floor: to("a user's token", a.gate.url+"/s/"+plain.ID+"/mcp/"+serverName, userToken, n),
			ours:  []*side{to("a run's token", server.URL, strings.TrimPrefix(server.Headers["Authorization"], "Bearer "), n)},
		}
		got, err := c.rounds(t.s.Rounds)
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}
