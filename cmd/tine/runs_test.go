package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// fakeRuns is a gateway with runs, each of which is in the next of its states whenever it
// is asked for; the last one stays.
type fakeRuns struct {
	mu     sync.Mutex
	token  string // that it wants; empty for any
	states map[string][]api.Run
	events []api.Event
	cut    int // break each stream off after so many events; 0 for none
	// answered is called after every answer.
	answered func(r *http.Request)
}

func (f *fakeRuns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered != nil {
		defer f.answered(r)
	}
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		w.WriteHeader(http.StatusUnauthorized)
		json.NewEncoder(w).Encode(api.Error{Kind: api.KindRefused, Message: "unknown or expired token"})
		return
	}
	id, stop := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/runs/"), "/stop")
	switch {
	case r.URL.Path == "/v1/events":
		f.stream(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/runs":
		json.NewEncoder(w).Encode(api.Run{ID: "run_000000000001", Session: "ses_000000000001", State: api.RunPending})
	case len(f.states[id]) == 0:
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(notFound("run " + id))
	case stop:
		var in api.StopRun
		json.NewDecoder(r.Body).Decode(&in)
		out := api.StoppedRun{Run: f.state(id)}
		if in.Children {
			out.Below = []api.Run{{ID: "run_000000000009", State: api.RunStopping}}
		}
		json.NewEncoder(w).Encode(out)
	default:
		json.NewEncoder(w).Encode(f.state(id))
	}
}

func (f *fakeRuns) state(id string) api.Run {
	all := f.states[id]
	if len(all) > 1 {
		f.states[id] = all[1:]
	}
	run := all[0]
	run.ID = id
	return run
}

func (f *fakeRuns) stream(w http.ResponseWriter, r *http.Request) {
	after := r.URL.Query().Get("after")
	sent := 0
	for i, e := range f.events {
		if e.ID = fmt.Sprint(i + 1); after != api.EventsFromStart && e.ID <= after {
			continue
		}
		if f.cut > 0 && sent == f.cut {
			return
		}
		e.Run = "run_000000000001"
		json.NewEncoder(w).Encode(e)
		sent++
	}
}

func (f *fakeRuns) start(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

func completedWith(text string) api.Run {
	return api.Run{State: api.RunCompleted, Result: &api.RunResult{Text: text}}
}

// soon has the pauses of a program pass at once.
func soon(time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	c <- testNow
	return c
}

// TestRunsStop stops runs in several states, and says what is true of each.
func TestRunsStop(t *testing.T) {
	states := func() map[string][]api.Run {
		return map[string][]api.Run{
			"run_000000000001": {{State: api.RunStopping}, {State: api.RunStopping}, {State: api.RunStopped}},
			"run_000000000002": {{State: api.RunStopped}},
			"run_000000000003": {{State: api.RunCompleted}},
			"run_000000000004": {{State: api.RunFailed}},
			"run_000000000009": {{State: api.RunStopped}},
		}
	}
	all := []string{"000000000001", "000000000002", "000000000003", "000000000004"}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{all, "run_000000000001: stopping\nrun_000000000002: stopped\nrun_000000000003: completed already\nrun_000000000004: failed already\n"},
		{append([]string{"--wait"}, all...), "run_000000000001: stopped\nrun_000000000002: stopped\nrun_000000000003: completed already\nrun_000000000004: failed already\n"},
		{[]string{"--tree", all[0]}, "run_000000000001: stopping\nrun_000000000009: stopping\n"},
		{[]string{"--tree", "--wait", all[2]}, "run_000000000003: completed already\nrun_000000000009: stopped\n"},
	} {
		url := (&fakeRuns{states: states()}).start(t)
		out, stderr, code := run(t, url, append([]string{"runs", "stop"}, tt.args...)...)
		if code != 0 || out != tt.want || stderr != "" {
			t.Errorf("%q: exit %d, %q and %q, want %q", tt.args, code, out, stderr, tt.want)
		}
	}
	url := (&fakeRuns{states: states()}).start(t)
	out, stderr, code := run(t, url, "runs", "stop", "--json", "--tree", all[0], all[2], "00000000000f")
	var got struct {
		Runs []struct {
			ID, State string
			Below     []struct{ ID, State string }
		}
		Errors []errorObject
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if code != exitUsage || len(got.Errors) != 1 || !strings.Contains(stderr, "no run run_00000000000f") || len(got.Runs) != 2 ||
		got.Runs[0].State != api.RunStopping || len(got.Runs[0].Below) != 1 || got.Runs[1].State != api.RunCompleted {
		t.Errorf("exit %d, %q, printed %s", code, stderr, out)
	}
}

// TestStoppedRun waits for a run that is stopped.
func TestStoppedRun(t *testing.T) {
	why := &api.Error{Kind: api.KindRefused, Message: "it was stopped by ada"}
	for by, want := range map[string]string{"ada": "run run_000000000001 was stopped by ada\n", "": "run run_000000000001 was stopped\n"} {
		url := (&fakeRuns{states: map[string][]api.Run{"run_000000000001": {{State: api.RunStopped, StoppedBy: by, Error: why}}}}).start(t)
		out, stderr, code := run(t, url, "runs", "show", "--wait", "000000000001")
		if code != exitFailed || out != "" || stderr != want {
			t.Errorf("stopped by %q: exit %d, %q and %q, want %q", by, code, out, stderr, want)
		}
	}
	url := (&fakeRuns{states: map[string][]api.Run{"run_000000000001": {{State: api.RunStopped, StoppedBy: "ada", Error: why}}}}).start(t)
	if out, _, _ := run(t, url, "runs", "show", "000000000001"); !strings.Contains(out, "stopped by  ada\n") || strings.Contains(out, "refused") {
		t.Errorf("shown as %q", out)
	}
}

// TestWithheldRun waits for a run whose result the caller does not read.
func TestWithheldRun(t *testing.T) {
	url := (&fakeRuns{states: map[string][]api.Run{"run_000000000001": {{State: api.RunCompleted, Withheld: true}}}}).start(t)
	out, stderr, code := run(t, url, "runs", "show", "--wait", "000000000001")
	if want := "run run_000000000001 is completed; its owner and operators read its result\n"; code != 0 || out != "" || stderr != want {
		t.Errorf("exit %d, %q and %q, want %q", code, out, stderr, want)
	}
}

// TestRunSaysItsID waits for a run and follows one. The result alone is on standard output.
func TestRunSaysItsID(t *testing.T) {
	f := &fakeRuns{states: map[string][]api.Run{"run_000000000001": {completedWith("hello")}}, events: []api.Event{{Type: api.EventRunState, State: api.RunCompleted}}}
	url := f.start(t)
	const id = "run_000000000001 in ses_000000000001; if this command is interrupted, go on with "
	out, stderr, code := run(t, url, "run", "worker", "x", "--wait")
	if want := id + "`tine runs show --wait run_000000000001`\n"; code != 0 || out != "hello\n" || stderr != want {
		t.Errorf("--wait: exit %d, %q and %q, want %q", code, out, stderr, want)
	}
	out, stderr, code = run(t, url, "run", "worker", "x", "--follow")
	if want := id + "`tine runs logs --follow run_000000000001`\n"; code != 0 || out != "run is completed\nhello\n" || stderr != want {
		t.Errorf("--follow: exit %d, %q and %q, want %q", code, out, stderr, want)
	}
	// What the agent has said last is not printed again.
	f.events = append([]api.Event{{Type: api.EventRunText, Data: json.RawMessage(`{"text":"hello"}`)}}, f.events...)
	if out, _, code := run(t, url, "run", "worker", "x", "--follow"); code != 0 || out != "hello\nrun is completed\n" {
		t.Errorf("--follow: exit %d, %q", code, out)
	}
}

// TestFollowJSON follows runs for a program: the last line is the run, and the exit status its end.
func TestFollowJSON(t *testing.T) {
	failed := api.Run{State: api.RunFailed, Error: &api.Error{Kind: api.KindTool, Message: "out of paper"}}
	stopped := api.Run{State: api.RunStopped, StoppedBy: "ada"}
	for want, end := range map[string]api.Run{`"text":"hello"`: completedWith("hello"), `"message":"out of paper"`: failed, `"stopped_by":"ada"`: stopped} {
		for _, args := range [][]string{{"run", "worker", "x"}, {"runs", "logs", "000000000001"}, {"runs", "resume", "000000000001", "--prompt", "x"}} {
			f := &fakeRuns{states: map[string][]api.Run{"run_000000000001": {end}}, events: []api.Event{{Type: api.EventRunState, State: end.State}}}
			out, _, code := run(t, f.start(t), append(args, "--follow", "--json")...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			var event api.Event
			var last api.Run
			if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &event) != nil || json.Unmarshal([]byte(lines[1]), &last) != nil {
				t.Fatalf("%q: printed %s", args, out)
			}
			wantCode := 0
			if end.State != api.RunCompleted {
				wantCode = exitFailed
			}
			if code != wantCode || event.Type != api.EventRunState || last.ID != "run_000000000001" || last.State != end.State || !strings.Contains(lines[1], want) {
				t.Errorf("%q: exit %d, %s; want exit %d and %s", args, code, out, wantCode, want)
			}
		}
	}
	f := &fakeRuns{states: map[string][]api.Run{"run_000000000001": {failed}}, events: []api.Event{{Type: api.EventRunState, State: api.RunFailed}}}
	if out, stderr, code := run(t, f.start(t), "runs", "logs", "000000000001"); code != 0 || out != "run is failed\n" || !strings.Contains(stderr, "out of paper") {
		t.Errorf("logs: exit %d, %q and %q", code, out, stderr)
	}
	if out, stderr, code := run(t, f.start(t), "run", "worker", "x"); code != 0 || out != "run_000000000001\n" || !strings.HasPrefix(stderr, "in ses_000000000001; ") {
		t.Errorf("run: exit %d, %q and %q", code, out, stderr)
	}
}

// TestRunWaits shows, follows and waits for a run that no runner takes.
func TestRunWaits(t *testing.T) {
	const why = `a runner with the tag "gpu"; none is there, and it fails at 2026-11-15T12:05:00Z`
	pending := api.Run{State: api.RunPending, WaitsFor: why}
	f := &fakeRuns{events: []api.Event{{Type: api.EventRunState, State: api.RunPending}, {Type: api.EventRunState, State: api.RunCompleted}}}
	url := f.start(t)
	begin := func(states ...api.Run) { f.states = map[string][]api.Run{"run_000000000001": states} }

	begin(pending)
	if out, _, _ := run(t, url, "runs", "show", "000000000001"); !strings.Contains(out, "waits for  "+why+"\n") {
		t.Errorf("shown as %q", out)
	}
	begin(pending, pending, pending, completedWith("hello"))
	if out, stderr, code := run(t, url, "runs", "show", "--wait", "000000000001"); code != 0 || out != "hello\n" || stderr != "run run_000000000001 is pending: it waits for "+why+"\n" {
		t.Errorf("--wait: exit %d, %q and %q", code, out, stderr)
	}
	begin(pending, pending, completedWith("hello")) // it is asked for first
	if out, _, code := run(t, url, "runs", "logs", "--follow", "000000000001"); code != 0 || out != "run is pending: it waits for "+why+"\nrun is completed\nhello\n" {
		t.Errorf("--follow: exit %d, %q", code, out)
	}
}

// TestRunIsCalledBack waits for a run whose agent has started two others. Its result is that
// of the run which was told of the second.
func TestRunIsCalledBack(t *testing.T) {
	const one, two, three = "run_000000000001", "run_000000000002", "run_000000000003"
	after := func(last string, awaits int) api.Run {
		r := completedWith("started two")
		r.CalledBack, r.Awaits = last, awaits
		return r
	}
	begin := func() *fakeRuns {
		return &fakeRuns{states: map[string][]api.Run{
			one: {{State: api.RunRunning}, after("", 2), after("", 2), after(two, 1), after(two, 1), after(three, 0)},
			two: {completedWith("half")}, three: {completedWith("whole")},
		}, events: []api.Event{{Type: api.EventRunText, Data: json.RawMessage(`{"text":"words"}`)}, {Type: api.EventRunState, State: api.RunCompleted}}}
	}
	for how, want := range map[string]string{"--wait": "whole\n", "--follow": strings.Repeat("words\nrun is completed\n", 3) + "whole\n"} {
		tc := newTestCLI(t, "run", "worker", "x", how)
		tc.env["TINE_URL"] = begin().start(t)
		tc.after = soon
		if code := tc.cli.run(t.Context()); code != 0 || tc.out.String() != want {
			t.Errorf("%s: exit %d, %q, want %q", how, code, tc.out.String(), want)
		}
		for _, said := range []string{one + " is completed, and its agent is called back by 2 agents\n", two + " is completed, and its agent is called back by 1 agent\n"} {
			if how == "--wait" && strings.Count(tc.err.String(), said) != 1 {
				t.Errorf("it says %q, want %q once", tc.err.String(), said)
			}
		}
	}
	// One that has failed is not waited for any longer.
	failed := after("", 2)
	failed.State, failed.Error = api.RunFailed, &api.Error{Kind: api.KindTool, Message: "it broke"}
	url := (&fakeRuns{states: map[string][]api.Run{one: {failed}}}).start(t)
	if out, stderr, code := run(t, url, "runs", "show", "--wait", one); code != exitFailed || out != "" || stderr != "run "+one+" has failed (tool): it broke\n" {
		t.Errorf("one that failed: exit %d, %q and %q", code, out, stderr)
	}
}

// points has a program find a gateway in its state folder.
func (tc *testCLI) points(t *testing.T, url, token string) {
	t.Helper()
	if err := writeGatewayFile(tc.env["TINE_STATE"], gatewayFile{URL: url, Token: token, PID: os.Getpid()}); err != nil {
		t.Error(err) // a server may call it
	}
}

// TestRunOverARestart kills the gateway while a run is waited for. The next one has another
// address and another token.
func TestRunOverARestart(t *testing.T) {
	text := func(s string) api.Event {
		return api.Event{Type: api.EventRunText, Data: json.RawMessage(`{"text":"` + s + `"}`)}
	}
	events := []api.Event{text("one"), text("two"), {Type: api.EventRunState, State: api.RunCompleted}}
	for name, tt := range map[string]struct {
		args []string
		out  string
	}{
		"wait":        {[]string{"run", "worker", "x", "--wait"}, "hello\n"},
		"follow":      {[]string{"run", "worker", "x", "--follow"}, "one\ntwo\nrun is completed\nhello\n"},
		"show --wait": {[]string{"runs", "show", "--wait", "000000000001"}, "hello\n"},
	} {
		// In the first second after the start of the next gateway, its token is not known.
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", late), func(t *testing.T) {
				tc := newTestCLI(t, tt.args...)
				at := func(url, token string) { tc.points(t, url, token) }
				next := &fakeRuns{token: "second", events: events, states: map[string][]api.Run{"run_000000000001": {completedWith("hello")}}}
				second := next.start(t)
				first := &fakeRuns{token: "first", events: events[:2], cut: 1, states: map[string][]api.Run{"run_000000000001": {{State: api.RunRunning}}}}
				if late {
					next.answered = func(*http.Request) { at(second, "second") }
				}
				server := httptest.NewServer(first)
				t.Cleanup(server.Close)
				first.answered = func(r *http.Request) {
					if r.URL.Path != "/v1/events" && !r.URL.Query().Has("wait") {
						return // it is there at first
					}
					if late {
						at(second, "first")
					} else {
						at(second, "second")
					}
					server.CloseClientConnections()
					server.Listener.Close()
				}
				at(server.URL, "first")
				tc.after = soon
				code := tc.cli.run(t.Context())
				if code != 0 || tc.out.String() != tt.out || !strings.Contains(tc.err.String(), "waiting for it") {
					t.Errorf("exit %d, %q and %q, want %q", code, tc.out.String(), tc.err.String(), tt.out)
				}
			})
		}
	}
	// It may be at the same address, with another token, between two requests.
	tc := newTestCLI(t, "runs", "show", "--wait", "000000000001")
	f := &fakeRuns{token: "first", states: map[string][]api.Run{"run_000000000001": {{State: api.RunRunning}, {State: api.RunRunning}, completedWith("hello")}}}
	url := f.start(t)
	f.answered = func(r *http.Request) {
		f.token = "second"
		tc.points(t, url, f.token)
	}
	tc.points(t, url, f.token)
	tc.after = soon
	if code := tc.cli.run(t.Context()); code != 0 || tc.out.String() != "hello\n" || !strings.Contains(tc.err.String(), "unknown or expired token; waiting for it") {
		t.Errorf("with another token: exit %d, %q and %q", code, tc.out.String(), tc.err.String())
	}
	// A gateway that is not there at first is not waited for.
	if _, stderr, code := run(t, "http://127.0.0.1:1", "runs", "show", "--wait", "000000000001"); code != exitFailed || !strings.Contains(stderr, "no gateway") {
		t.Errorf("without a gateway: exit %d, %q", code, stderr)
	}
}

// TestRunTextIsVisible has an agent send control sequences. On a terminal they are shown,
// and elsewhere they stay as they are.
func TestRunTextIsVisible(t *testing.T) {
	const raw, shown = "\x1b[31mred\x1b]0;title\x07\x1b[2J", "^[[31mred^[]0;title^G^[[2J"
	data, err := json.Marshal(map[string]string{"text": raw})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeRuns{
		states: map[string][]api.Run{
			"run_000000000001": {{State: api.RunCompleted, Agent: "a", Result: &api.RunResult{Text: raw, Data: json.RawMessage("{\"\u009b2J\":1}")}}},
			"run_000000000002": {{State: api.RunFailed, Error: &api.Error{Kind: api.KindTool, Message: raw}}},
		},
		events: []api.Event{{Type: api.EventRunText, Data: data}, {Type: api.EventRunStderr, Data: data}, {Type: api.EventRunState, State: api.RunCompleted}},
	}
	url := f.start(t)
	for _, args := range [][]string{
		{"runs", "show", "--wait", "000000000001"}, {"runs", "show", "000000000001"}, {"runs", "logs", "--follow", "000000000001"},
		{"runs", "show", "--wait", "000000000002"}, {"runs", "show", "000000000002"}, {"run", "worker", "x", "--wait"},
	} {
		for _, terminal := range []bool{false, true} {
			tc := newTestCLI(t, args...)
			tc.env["TINE_URL"] = url
			tc.outTerminal, tc.errTerminal = terminal, terminal
			tc.cli.run(t.Context())
			text := tc.out.String() + tc.err.String()
			if got := strings.Contains(text, raw); got == terminal {
				t.Errorf("%q on a terminal (%t): %q", args, terminal, text)
			}
			if got := strings.Contains(text, shown); got != terminal || terminal && strings.ContainsAny(text, "\x1b\x07\u009b") {
				t.Errorf("%q on a terminal (%t): %q", args, terminal, text)
			}
		}
	}
}
