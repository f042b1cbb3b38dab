package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/identity"
)

// A link does not lead an agent out of the folder of the one that starts it.
func TestFolderBehindALink(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"project/below", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../other", filepath.Join(dir, "project", "out")); err != nil {
		t.Fatal(err)
	}
	bubble(t, func(t *testing.T, r *rig) {
		boss := r.start(otto, api.NewRun{Agent: "boss", ProjectDir: filepath.Join(dir, "project")})
		r.running(boss)
		_, err := r.Start(t.Context(), as(boss), NewRun{NewRun: api.NewRun{Agent: "worker", ProjectDir: filepath.Join(dir, "project", "out")}})
		refusedWith(t, err, api.KindRefused, "works in the folder of that one")
		r.start(as(boss), api.NewRun{Agent: "worker", ProjectDir: filepath.Join(dir, "project", "below")})
	})
}

func TestRefusedRequests(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		boss := r.agent(ada, "boss")
		r.running(boss)
		idle := r.agent(ada, "worker")
		r.do(idle, done(""))
		prog := r.agent(ada, "prog")
		c := r.running(prog)
		running := as(boss)
		program := as(prog)
		long := strings.Repeat("x", mostParameters)
		r.book.resolve = func(name string, in Input) error {
			if in.Parameters["bad"] != nil {
				return &api.Error{Kind: api.KindInvalid, Code: api.CodeParameters, Message: "parameters do not fit", ValidationErrors: []api.ValidationError{{Path: "/bad"}}}
			}
			return nil
		}
		for name, tt := range map[string]struct {
			who   identity.Principal
			in    api.NewRun
			kind  api.Kind
			words string
		}{
			"no agent":               {ada, api.NewRun{}, api.KindInvalid, "agent: name"},
			"unknown agent":          {ada, api.NewRun{Agent: "none"}, api.KindInvalid, "no agent none"},
			"unknown session":        {ada, api.NewRun{Session: "ses_none"}, api.KindInvalid, "no agent session ses_none of yours"},
			"another's session":      {bob, api.NewRun{Session: idle.Session}, api.KindInvalid, "no agent session"},
			"a viewer resumes":       {vera, api.NewRun{Session: idle.Session}, api.KindRefused, "role operator"},
			"another agent":          {ada, api.NewRun{Session: idle.Session, Agent: "boss"}, api.KindInvalid, "leave agent out"},
			"another folder":         {ada, api.NewRun{Session: idle.Session, ProjectDir: "/x"}, api.KindInvalid, "project_dir"},
			"two prompts":            {ada, api.NewRun{Agent: "worker", Prompt: "a", Parameters: map[string]any{"prompt": "b"}}, api.KindInvalid, "another prompt"},
			"large":                  {ada, api.NewRun{Agent: "worker", Prompt: long}, api.KindInvalid, "bytes of JSON"},
			"labels":                 {ada, api.NewRun{Agent: "worker", Labels: map[string]string{"": "x"}}, api.KindInvalid, "labels"},
			"scope":                  {ada, api.NewRun{Agent: "worker", Scope: map[string]string{"": "x"}}, api.KindInvalid, "scope"},
			"relative folder":        {otto, api.NewRun{Agent: "worker", ProjectDir: "x"}, api.KindInvalid, "absolute"},
			"folder of a user":       {ada, api.NewRun{Agent: "worker", ProjectDir: "/etc"}, api.KindRefused, "project_dir: only an operator"},
			"mode without a parent":  {ada, api.NewRun{Agent: "worker", Mode: api.ModeSync}, api.KindInvalid, "mode"},
			"unknown mode":           {running, api.NewRun{Agent: "worker", Mode: "later"}, api.KindInvalid, "mode"},
			"too many tags":          {ada, api.NewRun{Agent: "worker", Demands: &api.Demands{Tags: make([]string, mostTags+1)}}, api.KindInvalid, "demands.tags"},
			"parameters":             {ada, api.NewRun{Agent: "worker", Parameters: map[string]any{"bad": 1}}, api.KindInvalid, "do not fit"},
			"no token of a run":      {bound(boss, ""), api.NewRun{Agent: "worker"}, api.KindRefused, "for one session"},
			"a run of another":       {bound(boss, prog.ID), api.NewRun{Agent: "worker"}, api.KindRefused, "another run"},
			"an ended run":           {as(idle), api.NewRun{Agent: "worker"}, api.KindRefused, "is completed"},
			"not in its patterns":    {running, api.NewRun{Agent: "again"}, api.KindRefused, "may not start agent again"},
			"no patterns":            {program, api.NewRun{Agent: "worker"}, api.KindRefused, "may not start"},
			"scope of an agent":      {running, api.NewRun{Agent: "worker", Scope: map[string]string{"a": "b"}}, api.KindRefused, "scope"},
			"folder of an agent":     {running, api.NewRun{Agent: "worker", ProjectDir: "/etc"}, api.KindRefused, "project_dir"},
			"itself":                 {running, api.NewRun{Session: boss.Session}, api.KindRefused, "not in its own"},
			"a session not below it": {running, api.NewRun{Session: idle.Session}, api.KindInvalid, "no agent session"},
		} {
			_, err := r.Start(t.Context(), tt.who, NewRun{NewRun: tt.in})
			if err == nil {
				t.Errorf("%s was accepted", name)
				continue
			}
			refusedWith(t, err, tt.kind, tt.words)
		}
		_, err := r.Start(t.Context(), ada, NewRun{NewRun: api.NewRun{Agent: "worker", Parameters: map[string]any{"bad": 1}}})
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeParameters || len(e.ValidationErrors) != 1 {
			t.Errorf("parameters: %+v", e)
		}
		r.report(c, done(""))
		_, err = r.Start(t.Context(), ada, NewRun{NewRun: api.NewRun{Session: prog.Session}})
		if !errors.As(err, &e) || e.Code != api.CodeNoResume || e.Status != 400 {
			t.Errorf("resume of a program: %+v", e)
		}
		if n := len(must(r.Runs(t.Context(), otto, Filter{})).Runs); n != 3 {
			t.Errorf("there are %d runs, want the 3 that were accepted", n)
		}
	})
}

func TestChildrenInherit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		boss := r.start(otto, api.NewRun{Agent: "boss", ProjectDir: "/p/../q", Scope: map[string]string{"tenant": "7"}, Labels: map[string]string{"team": "a", "role": "boss"}})
		r.running(boss)
		a := r.start(as(boss), api.NewRun{Agent: "worker", Labels: map[string]string{"role": "hand"}})
		b := r.start(as(boss), api.NewRun{Agent: "worker", ProjectDir: "/q/x"})
		in := r.book.inputs
		if in[1].Scope["tenant"] != "7" || in[1].ParentAgent != "boss" || in[1].Parent != boss.Session || in[1].ProjectDir != "/q" || b.ProjectDir != "/q/x" || a.Owner != "otto" || a.Mode != api.ModeSync {
			t.Errorf("inherited %+v, %+v, %+v", in[1], a, b)
		}
		if fmt.Sprint(a.Labels, b.Labels) != "map[role:hand team:a] map[role:boss team:a]" {
			t.Errorf("inherited the labels %v and %v", a.Labels, b.Labels)
		}
		c := r.claim(r1)
		if c.Run != a.ID || c.Job.Metadata["parent_session_id"] != boss.Session || c.Job.Metadata["parent_agent_name"] != "boss" || c.Job.Metadata["project_dir"] != "/q" || c.World.Parent != boss.Session {
			t.Errorf("claimed %+v", c)
		}
		if string(c.World.Pinned) != string(identity.Pin(otto)) {
			t.Errorf("pinned %s", c.World.Pinned)
		}
	})
}

func TestLimits(t *testing.T) {
	few := func(r *rig) {
		r.o.Limits = blueprint.Limits{Depth: 2, Children: 2, Runs: 3}
		r.o.Queue = 6
		r.book.all["shy"] = Resolved{Resolved: blueprint.Resolved{Executor: "exec", Agents: []string{"*"}, Limits: blueprint.Limits{Depth: 1, Children: 1}}}
		r.book.all["bold"] = Resolved{Resolved: blueprint.Resolved{Executor: "exec", Agents: []string{"*"}, Limits: blueprint.Limits{Depth: 9, Children: 9, Runs: 9}}}
	}
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		try := func(who identity.Principal, agent string) error {
			_, err := r.Start(ctx, who, NewRun{NewRun: api.NewRun{Agent: agent}})
			return err
		}
		// An agent that may start itself does so as deep as it may.
		top := r.agent(ada, "boss")
		r.running(top)
		second := r.start(as(top), api.NewRun{Agent: "boss"})
		r.running(second)
		third := r.start(as(second), api.NewRun{Agent: "boss"})
		r.running(third)
		refusedWith(t, try(as(third), "boss"), api.KindRefused, "generations")
		r.start(as(top), api.NewRun{Agent: "worker"})
		refusedWith(t, try(as(top), "worker"), api.KindRefused, "2 agents that this one has started")

		// A blueprint has limits of its own, which hold below it.
		shy := r.agent(ada, "shy")
		for {
			c := r.claim(r1)
			r.report(c, done(""))
			if c.Run != shy.ID {
				continue
			}
			break
		}
		shy = r.start(ada, api.NewRun{Session: shy.Session})
		r.running(shy)
		boss := r.start(as(shy), api.NewRun{Agent: "boss"})
		refusedWith(t, try(as(shy), "worker"), api.KindRefused, "1 agents")
		r.running(boss)
		refusedWith(t, try(as(boss), "worker"), api.KindRefused, "generations")

		r.start(ada, api.NewRun{Agent: "worker"})
		refusedWith(t, try(ada, "worker"), api.KindRefused, "6 runs that have not ended")
	}, few)
	bubble(t, func(t *testing.T, r *rig) {
		run := r.agent(ada, "worker")
		r.do(run, done(""))
		for range 2 {
			r.do(r.start(ada, api.NewRun{Session: run.Session}), done(""))
		}
		_, err := r.Start(t.Context(), ada, NewRun{NewRun: api.NewRun{Session: run.Session}})
		refusedWith(t, err, api.KindRefused, "3 runs, which is the limit")
		// A blueprint does not go above those of the config.
		bold := r.agent(ada, "bold")
		r.running(bold)
		r.agent(as(bold), "worker")
		r.agent(as(bold), "worker")
		_, err = r.Start(t.Context(), as(bold), NewRun{NewRun: api.NewRun{Agent: "worker"}})
		refusedWith(t, err, api.KindRefused, "2 agents that this one has started")
	}, few)
}

// A limit of zero is one.
func TestNoGenerations(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		boss := r.agent(ada, "boss")
		r.running(boss)
		_, err := r.Start(t.Context(), as(boss), NewRun{NewRun: api.NewRun{Agent: "worker"}})
		refusedWith(t, err, api.KindRefused, "generations")
	}, func(r *rig) { r.o.Limits = blueprint.Limits{Children: 2, Runs: 3} })
}

func TestKeys(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		ask := func(who identity.Principal, key, agent string) (api.Run, error) {
			return r.Start(ctx, who, NewRun{NewRun: api.NewRun{Agent: agent, Prompt: "x"}, Key: key})
		}
		ids := make([]string, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() { ids[i] = must(ask(ada, "k", "worker")).ID })
		}
		wg.Wait()
		r.again()
		for _, id := range ids {
			if id != must(ask(ada, "k", "worker")).ID {
				t.Errorf("one key gave %v", ids)
			}
		}
		_, err := ask(ada, "k", "boss")
		refusedWith(t, err, api.KindInvalid, "another request")
		_, err = ask(ada, "a b", "worker")
		refusedWith(t, err, api.KindInvalid, "Idempotency-Key")
		if must(ask(bob, "k", "worker")).ID == ids[0] || must(ask(ada, "l", "worker")).ID == ids[0] {
			t.Error("other owners and other keys have the same run")
		}
		later(keyAge + time.Minute)
		fresh := must(ask(ada, "k", "worker"))
		if fresh.ID == ids[0] || must(ask(ada, "k", "worker")).ID != fresh.ID {
			t.Error("an old key gives its old run")
		}
		// A resume has keys, too.
		r.do(fresh, done(""))
		again := func() api.Run {
			return must(r.Start(ctx, ada, NewRun{NewRun: api.NewRun{Session: fresh.Session, Prompt: "y"}, Key: "m"}))
		}
		if a, b := again(), again(); a.ID != b.ID {
			t.Error("one key gave two resumes")
		}
		if n := len(must(r.Runs(ctx, otto, Filter{})).Runs); n != 5 {
			t.Errorf("there are %d runs", n)
		}
	})
}

func TestResults(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	for name, tt := range map[string]struct {
		schema string
		result *api.RunResult
		words  string // of the error; empty for none
	}{
		"no schema":      {"", &api.RunResult{Text: "x"}, ""},
		"nothing":        {"", nil, ""},
		"fits":           {schema, &api.RunResult{Data: []byte(`{"n":1}`)}, ""},
		"does not fit":   {schema, &api.RunResult{Text: "x", Data: []byte(`{"n":"one"}`)}, "does not fit the blueprint's schema"},
		"no data":        {schema, &api.RunResult{Text: "x"}, "no data"},
		"no JSON":        {schema, &api.RunResult{Data: []byte(`{`)}, "no JSON"},
		"no JSON either": {"", &api.RunResult{Text: "x", Data: []byte(`{`)}, "no JSON"},
		"no schema's":    {`{"type": 5}`, &api.RunResult{Data: []byte(`{}`)}, "schema for the result can't be"},
		"far too large":  {"", &api.RunResult{Text: strings.Repeat("x", mostResult+1)}, "may have"},
		"a missing part": {`{"$ref":"#/$defs/none"}`, &api.RunResult{Data: []byte(`{}`)}, "schema for the result can't be"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.book.all["s"] = Resolved{Resolved: blueprint.Resolved{Executor: "exec", Result: []byte(tt.schema)}}
				run := r.agent(ada, "s")
				c := r.running(run)
				r.report(c, runner.Report{Ended: true, Result: tt.result})
				got := must(r.Run(t.Context(), ada, run.ID))
				if (got.Error == nil) != (tt.words == "") || got.Error != nil && (got.Error.Kind != api.KindTool || !strings.Contains(got.Error.Message, tt.words)) {
					t.Errorf("%s: %+v", got.State, got.Error)
				}
				if (got.State == api.RunCompleted) != (tt.words == "") {
					t.Errorf("it is %s", got.State)
				}
			})
		})
	}
}
