package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// streams is a gateway whose journal has the calls 1 to n, and whose streams of
// calls send what is in rounds, one after the other.
type streams struct {
	mu     sync.Mutex
	n      int
	rounds [][]int // ids
	tokens []string
	token  string // that is wanted; empty for none
}

func (s *streams) call(id int) api.Call {
	return api.Call{ID: strconv.Itoa(id), At: testNow.Add(time.Duration(id) * time.Second), Server: "s", Method: "tools/call", Name: "t", Outcome: "ok", Journal: "full", Arguments: json.RawMessage(`{"x":"<&>"}`)}
}

func (s *streams) gateway() *fakeGateway {
	f := &fakeGateway{}
	f.calls = func(q url.Values) (any, *api.Error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := s.n
		if before, err := strconv.Atoi(q.Get("before")); err == nil {
			n = before - 1
		}
		limit, _ := strconv.Atoi(q.Get("limit"))
		var list api.CallList
		for ; n > 0 && len(list.Calls) < limit; n-- {
			list.Calls = append(list.Calls, s.call(n))
			list.Next = strconv.Itoa(n)
		}
		return list, nil
	}
	f.follow = func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.tokens = append(s.tokens, r.Header.Get("Authorization"))
		if s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token {
			s.mu.Unlock()
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var ids []int
		last := len(s.rounds) == 0
		if !last {
			ids, s.rounds = s.rounds[0], s.rounds[1:]
		}
		s.mu.Unlock()
		rc := http.NewResponseController(w)
		io.WriteString(w, "\n")
		rc.Flush()
		for _, id := range ids {
			json.NewEncoder(w).Encode(s.call(id))
			rc.Flush()
		}
		if last {
			<-r.Context().Done()
		}
	}
	return f
}

// shows waits until a text is printed.
func shows(t *testing.T, out fmt.Stringer, text string) {
	t.Helper()
	testkit.Succeeds(t, "it prints "+text, func() error {
		if got := out.String(); !strings.Contains(got, text) {
			return fmt.Errorf("it printed %q", got)
		}
		return nil
	})
}

func idsOf(t *testing.T, text string) string {
	t.Helper()
	var ids []string
	for line := range strings.Lines(text) {
		var call api.Call
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		ids = append(ids, call.ID)
	}
	return strings.Join(ids, " ")
}

// Following shows the last calls, then those that come, goes on after a break,
// and ends well when it is interrupted.
func TestFollowCalls(t *testing.T) {
	s := &streams{n: 20, rounds: [][]int{{20, 21, 22}, {}, {24}}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, errs := new(testkit.Log), new(testkit.Log)
	tc := newTestCLI(t, "calls", "--follow", "--limit", "3", "--json")
	tc.env["TINE_URL"] = s.gateway().start(t)
	tc.stdout, tc.stderr = out, errs
	tc.after = func(time.Duration) <-chan time.Time {
		s.mu.Lock()
		s.n = 23 // calls made without a follower
		s.mu.Unlock()
		now := make(chan time.Time, 1)
		now <- testNow
		return now
	}
	done := make(chan int)
	go func() { done <- tc.cli.run(ctx) }()
	shows(t, out, `"id":"24"`)
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit %d, %s", code, errs)
	}
	if got := idsOf(t, out.String()); got != "18 19 20 21 22 23 24" {
		t.Errorf("got %s", got)
	}
	if !strings.Contains(errs.String(), "waiting for it") || !strings.Contains(out.String(), `"<&>"`) {
		t.Errorf("said %q, printed %q", errs, out)
	}
}

// After a restart the gateway has another token in the state folder, perhaps at
// another address.
func TestFollowFindsTheGatewayAgain(t *testing.T) {
	first := &streams{n: 1, token: "one", rounds: [][]int{{2}}}
	second := &streams{n: 4, token: "two"}
	a, b := first.gateway().start(t), second.gateway().start(t)
	out := new(testkit.Log)
	tc := newTestCLI(t, "calls", "-f", "--json")
	tc.stdout = out
	state := tc.env["TINE_STATE"]
	put := func(url, token string) {
		if err := writeGatewayFile(state, gatewayFile{URL: url, Token: token, PID: 1}); err != nil {
			t.Error(err)
		}
	}
	put(a, "one")
	pauses := 0
	tc.after = func(time.Duration) <-chan time.Time {
		pauses++
		switch pauses {
		case 1:
			put(b, "one") // the address is new already, the token not yet
		case 2:
			put(b, "two")
		}
		now := make(chan time.Time, 1)
		now <- testNow
		return now
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int)
	go func() { done <- tc.cli.run(ctx) }()
	shows(t, out, `"id":"4"`)
	cancel()
	if code := <-done; code != 0 || idsOf(t, out.String()) != "1 2 3 4" {
		t.Errorf("exit %d, %s, %s", code, out, tc.err.String())
	}
	if pauses != 2 {
		t.Errorf("%d pauses", pauses)
	}
}

func TestFollowThatCannotBegin(t *testing.T) {
	s := &streams{token: "x"}
	_, stderr, code := run(t, s.gateway().start(t), "calls", "-f")
	if code != exitFailed || !strings.Contains(stderr, "TINE_TOKEN") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	_, stderr, code = run(t, "http://127.0.0.1:1", "calls", "-f")
	if code != exitFailed || !strings.Contains(stderr, "tine serve") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestFollowThatCannotBePrinted(t *testing.T) {
	s := &streams{n: 5}
	tc := newTestCLI(t, "calls", "-f")
	tc.env["TINE_URL"] = s.gateway().start(t)
	tc.stdout = brokenWriter{}
	if code := tc.cli.run(t.Context()); code != exitFailed || !strings.Contains(tc.err.String(), "write the output") {
		t.Errorf("exit %d, %q", code, tc.err.String())
	}
}

// slowWriter counts writes and holds the first one back.
type slowWriter struct {
	*testkit.Log
	writes  int
	begun   chan struct{}
	proceed chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.writes++
	if w.writes == 1 {
		close(w.begun)
		<-w.proceed
	}
	return w.Log.Write(p)
}

// Calls that come while others are printed are written together.
func TestFollowKeepsUp(t *testing.T) {
	const many = 3 * followBatch
	c := newTestCLI(t, "calls", "-f").cli
	w := &slowWriter{Log: new(testkit.Log), begun: make(chan struct{}), proceed: make(chan struct{})}
	ids := make([]int, many)
	for i := range ids {
		ids[i] = i + 1
	}
	s := &streams{rounds: [][]int{ids}}
	url := s.gateway().start(t)
	c.lookupEnv = func(k string) (string, bool) { return url, k == "TINE_URL" }
	c.stdout, c.stderr = w, new(testkit.Log)
	c.after = func(time.Duration) <-chan time.Time { return nil } // the stream ends, and nothing comes after it
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int)
	go func() { done <- c.run(ctx) }()
	<-w.begun
	// The reader goes on until its buffer is full; how far it comes until the
	// first write ends is its own affair.
	close(w.proceed)
	shows(t, w, fmt.Sprintf("  %d  ", many))
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit %d, %s", code, c.stderr)
	}
	printed := strings.Split(strings.TrimSpace(w.String()), "\n")
	if len(printed) != many+1 {
		t.Errorf("%d lines in %d writes", len(printed), w.writes)
	}
}

// What waits in the buffer goes out with one write.
func TestCallsArePrintedInBatches(t *testing.T) {
	tc := newTestCLI(t)
	tc.width = 80
	show := growing(tc.cli, tc.callTable(nil), tc.callRow)
	s := &streams{}
	if err := show([]api.Call{s.call(1), s.call(2)}); err != nil {
		t.Fatal(err)
	}
	long := s.call(3)
	long.Server = "much-longer"
	if err := show([]api.Call{long}); err != nil {
		t.Fatal(err)
	}
	if err := show([]api.Call{s.call(4)}); err != nil {
		t.Fatal(err)
	}
	// Columns grow and don't shrink again, and the header comes once.
	golden(t, "calls-follow", tc.out.String())
}

func TestReplayAsks(t *testing.T) {
	url := world().start(t)
	for _, tt := range []struct {
		id, answer string
		code       int
		out, say   string
	}{
		{"call_0005", "y\n", 0, "hello again\n", `files read_file {"path":"/srv/notes.txt"`},
		{"call_0005", "YES\n", 0, "hello again\n", "Call it again?"},
		{"call_0005", "\n", exitFailed, "", "nothing was called"},
		{"call_0005", "", exitFailed, "", "nothing was called"},
		{"call_0003", "", exitUsage, "", "keeps no arguments"},
		{"call_0002", "", exitUsage, "", "prompts/get"},
		{"call_0009", "", exitUsage, "", "unknown call"},
	} {
		tc := newTestCLI(t, "replay", tt.id)
		tc.env["TINE_URL"] = url
		tc.inTerminal, tc.stdin = true, strings.NewReader(tt.answer)
		code := tc.cli.run(t.Context())
		if code != tt.code || tc.out.String() != tt.out || !strings.Contains(tc.err.String(), tt.say) {
			t.Errorf("%s %q: exit %d, %q, %q", tt.id, tt.answer, code, tc.out.String(), tc.err.String())
		}
	}
}

func TestCallsOfNoServer(t *testing.T) {
	f := world()
	f.calls = func(url.Values) (any, *api.Error) { return api.CallList{}, nil }
	at := f.start(t)
	for server, want := range map[string]string{"fles": "did you mean files?", "files": "no matching calls\n"} {
		if _, stderr, code := run(t, at, "calls", "--server", server); code != 0 || !strings.Contains(stderr, "no matching calls") || !strings.HasSuffix(stderr, want) && !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q", server, code, stderr)
		}
	}
}

// A call that does not exist is told before --yes is asked for.
func TestReplayOfNoCallWithoutATerminal(t *testing.T) {
	if _, stderr, code := run(t, world().start(t), "replay", "call_0009"); code != exitUsage || !strings.Contains(stderr, "unknown call") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestReplayInterruptedAtTheQuestion(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, typed := io.Pipe()
	defer typed.Close()
	errs := new(testkit.Log)
	tc := newTestCLI(t, "replay", "call_0005")
	tc.env["TINE_URL"] = world().start(t)
	tc.inTerminal, tc.stdin, tc.stderr = true, in, errs
	done := make(chan int)
	go func() { done <- tc.cli.run(ctx) }()
	shows(t, errs, "[y/N]")
	cancel()
	if code := <-done; code != exitFailed || !strings.Contains(errs.String(), "interrupted") || tc.out.Len() > 0 {
		t.Errorf("exit %d, %q", code, errs)
	}
}

func TestMoments(t *testing.T) {
	c := newTestCLI(t).cli
	for text, want := range map[string]string{
		"1h": "2026-11-15T11:00:00Z", "90m": "2026-11-15T10:30:00Z", "7d": "2026-11-08T12:00:00Z", "1.5d": "2026-11-14T00:00:00Z",
		"2w": "2026-11-01T12:00:00Z", "2026-11-15T12:30:00+01:00": "2026-11-15T11:30:00Z", "2026-11-01": "2026-11-01T00:00:00Z",
		"0s": "", "-1h": "", "d": "", "1e99d": "", "NaNd": "", "1": "", "": "",
	} {
		got, err := c.since(text)
		if (err == nil) != (want != "") || err == nil && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("since %q: %v, %v; want %q", text, got, err, want)
		}
	}
	if got, err := c.expires("90d"); err != nil || got.Format(time.RFC3339) != "2027-02-13T12:00:00Z" {
		t.Errorf("expires: %v, %v", got, err)
	}
}
