package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// fake plays the coordinator: a run ends when its session is in ends.
type fake struct {
	agents []api.Agent

	mu       sync.Mutex
	started  []api.NewRun
	callers  []string
	runs     map[string]api.Run
	over     map[string]chan struct{}
	ended    map[string]api.Run
	sessions []api.AgentSession
	fail     map[string]error
	closed   []string
}

func (f *fake) Blueprints(_ context.Context, caller string) ([]api.Agent, error) {
	f.callers = append(f.callers, caller)
	return f.agents, nil
}

func (f *fake) Start(_ context.Context, caller string, in api.NewRun) (api.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.callers = append(f.callers, caller)
	f.started = append(f.started, in)
	if err := f.fail["start"]; err != nil {
		return api.Run{}, err
	}
	r := api.Run{ID: "run_1", Session: "ses_1", Agent: in.Agent, State: api.RunRunning}
	f.runs = map[string]api.Run{r.ID: r}
	return r, nil
}

func (f *fake) Run(ctx context.Context, _, id string, wait bool) (api.Run, error) {
	f.mu.Lock()
	r, over := f.runs[id], f.over[id]
	f.mu.Unlock()
	if wait {
		select {
		case <-over:
			return f.ended[id], nil
		case <-ctx.Done():
		}
	}
	return r, nil
}

func (f *fake) Sessions(context.Context, string) ([]api.AgentSession, error) { return f.sessions, nil }

func (f *fake) Session(_ context.Context, _, id string) (api.AgentSession, error) {
	for _, s := range f.sessions {
		if s.ID == id {
			return s, nil
		}
	}
	return api.AgentSession{}, &api.Error{Kind: api.KindInvalid, Message: "there is no agent session " + id}
}

func (f *fake) CloseAgent(_ context.Context, _, id string) error {
	if err := f.fail[id]; err != nil {
		return err
	}
	f.closed = append(f.closed, id)
	return nil
}

// connected is a client of a server over a fake.
func connected(t *testing.T, f *fake, settings map[string]any, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	srv, err := New(settings, f)
	if err != nil {
		t.Fatal(err)
	}
	here, there := mcp.NewInMemoryTransports()
	ss, err := srv.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, o).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cs.Close()
		ss.Wait()
	})
	return cs
}

func ask(t *testing.T, cs *mcp.ClientSession, tool string, args any) (string, *mcp.CallToolResult) {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Meta: mcp.Meta{wire.MetaTineCaller: "me"}, Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res.Content[0].(*mcp.TextContent).Text, res
}

func TestAsync(t *testing.T) {
	f := &fake{}
	cs := connected(t, f, nil, nil)
	text, res := ask(t, cs, "start_agent_session", map[string]any{"agent_name": "worker", "parameters": map[string]any{"n": json.Number("12345678901234567890")}, "mode": "async_poll", "project_dir": "/p"})
	if text != `{"session_id":"ses_1","status":"pending"}` || res.IsError {
		t.Errorf("answered %s", text)
	}
	text, _ = ask(t, cs, "resume_session", map[string]any{"session_id": "ses_1", "prompt": "go on", "mode": "async_callback"})
	if text != `{"session_id":"ses_1","status":"pending"}` {
		t.Errorf("answered %s", text)
	}
	want := []api.NewRun{
		{Agent: "worker", Parameters: map[string]any{"n": json.Number("12345678901234567890")}, ProjectDir: "/p", Mode: api.ModeAsyncPoll},
		{Session: "ses_1", Parameters: map[string]any{"prompt": "go on"}, Mode: api.ModeAsyncCallback},
	}
	got, _ := json.Marshal(f.started)
	if wanted, _ := json.Marshal(want); string(got) != string(wanted) {
		t.Errorf("started %s", got)
	}
	if f.callers[0] != "me" {
		t.Errorf("the caller is %q", f.callers[0])
	}
	if text, res = ask(t, cs, "start_session", map[string]any{"agent_name": "worker", "prompt": "x", "mode": "later"}); !res.IsError || !strings.Contains(text, "async_poll") {
		t.Errorf("a mode that does not exist: %s", text)
	}
}

// A call in the mode sync has the result, and hears meanwhile that the agent works.
func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		f := &fake{
			over:  map[string]chan struct{}{"run_1": over},
			ended: map[string]api.Run{"run_1": {ID: "run_1", Session: "ses_1", State: api.RunCompleted, Result: &api.RunResult{Text: "done", Data: json.RawMessage(`{"n":12345678901234567890}`)}}},
		}
		var heard int
		cs := connected(t, f, nil, &mcp.ClientOptions{ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { heard++ }})
		time.AfterFunc(3*pace+time.Second, func() { close(over) })
		params := &mcp.CallToolParams{Name: "start_session", Arguments: map[string]any{"agent_name": "worker", "prompt": "hi"}}
		params.SetProgressToken("p")
		res, err := cs.CallTool(t.Context(), params)
		if err != nil {
			t.Fatal(err)
		}
		if text := res.Content[0].(*mcp.TextContent).Text; text != `{"session_id":"ses_1","result_text":"done","result_data":{"n":12345678901234567890}}` {
			t.Errorf("answered %s", text)
		}
		synctest.Wait()
		if heard != 3 {
			t.Errorf("heard of progress %d times", heard)
		}
		cs.Close()
		synctest.Wait()
	})
}

// A wait that takes too long leaves the agent at work.
func TestSyncTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cs := connected(t, &fake{}, map[string]any{"wait": 12}, nil)
		if text, res := ask(t, cs, "start_session", map[string]any{"agent_name": "worker", "prompt": "hi"}); res.IsError || text != `{"session_id":"ses_1","status":"running"}` {
			t.Errorf("answered %s", text)
		}
		cs.Close()
		synctest.Wait()
	})
}

func TestResults(t *testing.T) {
	f := &fake{sessions: []api.AgentSession{{ID: "ses_1", Agent: "worker", State: api.AgentIdle, Run: "run_1"}}}
	cs := connected(t, f, nil, nil)
	for _, tt := range []struct {
		run  api.Run
		want string
		kind api.Kind
	}{
		{api.Run{State: api.RunCompleted}, `{"session_id":"ses_1","result_text":""}`, ""},
		{api.Run{State: api.RunCompleted, Result: &api.RunResult{Text: "t"}}, `{"session_id":"ses_1","result_text":"t"}`, ""},
		{api.Run{State: api.RunRunning}, "session ses_1: the agent is still at work (running)", api.KindRefused},
		{api.Run{State: api.RunStopped}, "session ses_1: the agent was stopped", api.KindTool},
		{api.Run{State: api.RunFailed, Error: &api.Error{Kind: api.KindLost, Message: "its runner is gone"}}, "session ses_1: the agent failed: its runner is gone", api.KindLost},
		{api.Run{State: api.RunFailed}, "session ses_1: the agent failed", api.KindInfrastructure},
	} {
		tt.run.ID, tt.run.Session = "run_1", "ses_1"
		f.runs = map[string]api.Run{"run_1": tt.run}
		text, res := ask(t, cs, "get_agent_session_result", map[string]any{"session_id": "ses_1"})
		var kind api.Kind
		if e, ok := res.Meta[wire.MetaTineError].(map[string]any); ok {
			kind = api.Kind(e["kind"].(string))
		}
		if !strings.HasPrefix(text, tt.want) || kind != tt.kind || res.IsError != (kind != "") {
			t.Errorf("%s: answered %s, kind %q", tt.run.State, text, kind)
		}
	}
	if text, _ := ask(t, cs, "get_agent_session_status", map[string]any{"session_id": "ses_1"}); text != `{"session_id":"ses_1","agent_name":"worker","status":"idle","last_run":"failed"}` {
		t.Errorf("status %s", text)
	}
	if text, res := ask(t, cs, "get_agent_session_status", map[string]any{"session_id": "ses_2"}); !res.IsError || !strings.Contains(text, "ses_2") {
		t.Errorf("of a session that does not exist: %s", text)
	}
}

func TestLists(t *testing.T) {
	f := &fake{
		agents:   []api.Agent{{Name: "a", Description: "does a", Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "broken", Problems: []string{"x"}}},
		sessions: []api.AgentSession{{ID: "ses_2", Agent: "a", State: api.AgentRunning}, {ID: "ses_1", Agent: "a", State: api.AgentIdle}},
		fail:     map[string]error{"ses_2": errors.New("it is in use")},
	}
	cs := connected(t, f, nil, nil)
	if text, _ := ask(t, cs, "list_agent_blueprints", nil); text != `{"agents":[{"name":"a","description":"does a","parameters_schema":{"type":"object"}}]}` {
		t.Errorf("agents %s", text)
	}
	if text, _ := ask(t, cs, "list_agent_sessions", nil); text != `{"sessions":[{"session_id":"ses_2","agent_name":"a","status":"running"},{"session_id":"ses_1","agent_name":"a","status":"idle"}]}` {
		t.Errorf("sessions %s", text)
	}
	if text, _ := ask(t, cs, "delete_all_agent_sessions", nil); text != `{"deleted":["ses_1"],"kept":{"ses_2":"it is in use"}}` {
		t.Errorf("deleted %s", text)
	}
}

// A call without an agent means the one there is.
func TestOnlyAgent(t *testing.T) {
	f := &fake{agents: []api.Agent{{Name: "a"}, {Name: "broken", Problems: []string{"x"}}}}
	cs := connected(t, f, nil, nil)
	if ask(t, cs, "start_session", map[string]any{"prompt": "x", "mode": "async_poll"}); len(f.started) != 1 || f.started[0].Agent != "a" {
		t.Errorf("started %+v", f.started)
	}
	f.agents = append(f.agents, api.Agent{Name: "b"})
	if text, res := ask(t, cs, "start_session", map[string]any{"prompt": "x"}); !res.IsError || !strings.Contains(text, "agent_name") || len(f.started) != 1 {
		t.Errorf("with two agents: %s", text)
	}
}

func TestSettings(t *testing.T) {
	for _, wrong := range []map[string]any{{"wait": 0}, {"wait": 100_000}, {"weight": 1}} {
		if _, err := New(wrong, &fake{}); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
