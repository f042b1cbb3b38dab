package runner

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
)

// begin finds the program of the run, or starts it. It returns how many events of it have
// been told.
func (w *work) begin() (told int, err error) {
	x := w.r.executor(w.c.Blueprint.Executor)
	if x == nil {
		err := &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("this runner has no executor %q; add it to agents.executors of the config", w.c.Blueprint.Executor)}
		if w.c.Adopted { // its program goes on
			return 0, lost(errors.Join(err, w.r.host.discard(w.c.Run)).Error())
		}
		return 0, err
	}
	w.executor = x
	if w.c.Adopted {
		switch p, err := w.r.host.adopt(w.c.Run); {
		case err == nil:
			return w.c.Events, w.adopted(x, p)
		case !errors.Is(err, errNever):
			return 0, lost(errors.Join(err, w.r.host.discard(w.c.Run)).Error())
		case w.c.Running || w.c.Events > 0:
			return 0, lost("nothing is left of its program, such as after its folder was removed")
		}
	} else if err := w.r.host.discard(w.c.Run); err != nil { // of a claim that was lost
		return 0, err
	}
	return 0, w.start(x)
}

// lost is the error of a run whose program may have done something.
func lost(why string) error {
	return &api.Error{Kind: api.KindLost, Message: why + "; what the run did until then may have taken effect"}
}

// masked hides what the program of an executor is given.
func (w *work) masked(x executor.Executor, token string) *mask {
	return newMask(slices.Concat([]string{token}, w.c.Blueprint.Secrets, x.Secrets()))
}

// adopted goes on with a program of an earlier start.
func (w *work) adopted(x executor.Executor, p *program) error {
	w.p = p
	with := p.pass()
	w.mask = w.masked(x, with.Token)
	filled, err := w.fill()
	if err == nil {
		err = w.describe(filled, with.Token)
	}
	if err != nil {
		return errors.Join(err, w.halt(nil))
	}
	w.reader = x.Read(w.job)
	w.print = fingerprint(w.job, filled)
	return nil
}

// start opens the world of the run and starts its program, or has one that waits begin
// another turn.
func (w *work) start(x executor.Executor) error {
	if err := w.lease.ask(w.ctx); err != nil {
		return err
	}
	filled, err := w.fill()
	if err != nil {
		return err
	}
	world, reach := w.c.World, []string{}
	for name, s := range filled.Servers {
		if s.Ref != "" {
			world.Servers, reach = append(world.Servers, s.Ref), append(reach, s.Ref)
			continue
		}
		if world.Inline == nil {
			world.Inline = make(map[string]json.RawMessage)
		}
		world.Inline[name], reach = s.Inline, append(reach, name)
	}
	world.Servers, reach = once(world.Servers), once(reach)
	worlds, session := w.r.o.Worlds, w.c.Job.Session
	if err := worlds.Open(w.ctx, world); err != nil {
		return failure("open the session of the run", err)
	}
	if w.turn(x, filled) {
		return nil
	}
	// A start that was killed may have made a token.
	if err := worlds.Revoke(w.ctx, session, w.c.Run); err != nil {
		return failure("revoke earlier tokens of the run", err)
	}
	w.minted = true
	token, err := worlds.Mint(w.ctx, session, w.c.Run, reach, 0)
	if err != nil {
		return failure("make a token for the run", err)
	}
	w.mask = w.masked(x, token)
	if err := w.describe(filled, token); err != nil {
		return err
	}
	plan, err := x.Plan(w.job)
	if err != nil {
		return invalid(err)
	}
	if w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	p, err := w.r.host.start(w.c.Run, pass{Session: session, Run: w.c.Run, Token: token}, plan)
	if err != nil {
		return failure("start the executor", err)
	}
	w.p, w.print = p, fingerprint(w.job, filled)
	w.reader = x.Read(w.job)
	return nil
}

func once(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// invalid is an error that a user can mend.
func invalid(err error) error {
	if e := new(api.Error); errors.As(err, &e) {
		return err
	}
	return &api.Error{Kind: api.KindInvalid, Message: err.Error()}
}

// fill fills in what this runner knows.
func (w *work) fill() (blueprint.Filled, error) {
	session := w.c.Job.Session
	values := map[string]string{
		"id": w.r.o.Me.ID, "hostname": w.r.o.Me.Hostname,
		"orchestrator_mcp_url": w.r.o.Worlds.URL(session, blueprint.Orchestrator),
	}
	if w.r.o.Values != nil {
		maps.Copy(values, w.r.o.Values(session))
	}
	filled, err := w.c.Blueprint.Fill(values)
	if err != nil {
		return filled, invalid(err)
	}
	return filled, nil
}

// headers of every request to a server that are the gateway's to say.
const (
	headerToken   = "Authorization"
	headerSession = "X-Agent-Session-Id"
)

// describe completes the job of the run.
func (w *work) describe(filled blueprint.Filled, token string) error {
	job, session := w.c.Job, w.c.Job.Session
	job.Agent.SystemPrompt = filled.SystemPrompt
	job.Config = filled.Config
	job.Env = filled.Env
	if w.r.o.API != nil {
		job.API = w.r.o.API(token)
	}
	for name, value := range map[string]string{"TRACEPARENT": w.c.Trace.Traceparent, "TRACESTATE": w.c.Trace.Tracestate} {
		if value != "" {
			job.Env[name] = value
		}
	}
	job.Agent.Servers = make(map[string]executor.Server, len(filled.Servers))
	for name, s := range filled.Servers {
		id := s.Ref
		if id == "" {
			id = name
		}
		headers := make(map[string]string)
		for key, value := range s.Headers {
			headers[http.CanonicalHeaderKey(key)] = value
		}
		headers[headerToken], headers[headerSession] = "Bearer "+token, session
		job.Agent.Servers[name] = executor.Server{Type: "http", URL: w.r.o.Worlds.URL(session, id), Headers: headers}
	}
	var err error
	if job.Dir, err = w.r.sessionDir(session); err != nil {
		return err
	}
	if err := os.MkdirAll(job.Dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the session: %w", err)
	}
	if job.Folder, err = w.r.host.dir(w.c.Run); err != nil {
		return err
	}
	w.job = job
	return nil
}

// fingerprint is of what a program keeps from its start: one that waits is given another
// run only where that is the same.
func fingerprint(job executor.Job, filled blueprint.Filled) string {
	job = executor.Job{Session: job.Session, ProjectDir: job.ProjectDir, Dir: job.Dir, Agent: job.Agent, Config: job.Config, Env: filled.Env}
	servers := make(map[string]executor.Server, len(job.Agent.Servers))
	for name, s := range job.Agent.Servers {
		s.Headers = maps.Clone(s.Headers)
		delete(s.Headers, headerToken)
		servers[name] = s
	}
	job.Agent.Servers = servers
	raw, err := json.Marshal(job)
	if err != nil {
		return "" // is no one's
	}
	sum := sha256.Sum256(raw)
	return string(sum[:])
}
