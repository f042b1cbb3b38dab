package main

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// fetchingWorld has a server that fetches until its text was seen.
func fetchingWorld(fetch api.Fetch) (f *fakeGateway, asked *atomic.Int64) {
	f, asked = world(), new(atomic.Int64)
	f.servers = func() (any, *api.Error) {
		asked.Add(1)
		return api.ServerList{Servers: []api.Server{
			{ID: "files", Enabled: true, State: api.StateFetching, Fetch: &fetch, Since: testNow},
			{ID: "time", Enabled: true, State: api.StateIdle, Since: testNow},
		}}, nil
	}
	return f, asked
}

func TestServersFetching(t *testing.T) {
	for want, fetch := range map[string]api.Fetch{
		"fetching, 34 MB of 80 ": {Package: "pkg", Bytes: 34_400_000, Total: 80e6},
		"fetching, 34 MB  ":      {Package: "pkg", Bytes: 33_500_000},
		"fetching, 0 MB of 1 ":   {Package: "pkg", Total: 600_000},
		"fetching  ":             {Package: "pkg", Bytes: 400_000},
	} {
		f, _ := fetchingWorld(fetch)
		out, stderr, code := run(t, f.start(t), "servers")
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, %q, want %q in %q", code, stderr, want, out)
		}
	}
}

// A call says how far its server's packages are, in one line of a terminal and in some
// of a log.
func TestCallShowsTheFetch(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		f, asked := fetchingWorld(api.Fetch{Package: "pkg", Bytes: 34e6, Total: 80e6})
		said := make(chan struct{})
		f.call = func(api.CallRequest) (any, *api.Error) {
			<-said
			return json.RawMessage(`{"result":{"content":[{"type":"text","text":"done"}]}}`), nil
		}
		tc := newTestCLI(t, "call", "files__read_file", "--args", "{}")
		tc.env["TINE_URL"] = f.start(t)
		tc.errTerminal = terminal
		passed := make(chan time.Time)
		close(passed)
		tc.after = func(time.Duration) <-chan time.Time { return passed }
		tc.stderr = &lateWrite{firstWrite: firstWrite{w: &tc.err, done: said}, asked: asked}
		if code := tc.cli.run(t.Context()); code != 0 || tc.out.String() != "done\n" {
			t.Errorf("exit %d, %q, %q", code, tc.out.String(), tc.err.String())
		}
		line := "calling files__read_file: fetching, 34 MB of 80"
		if got := tc.err.String(); !strings.Contains(got, line) || !terminal && got != line+"\n" {
			t.Errorf("terminal %t: said %q", terminal, got)
		}
	}
}

// lateWrite tells of a write after the gateway was asked some more times, so that what
// is said too often is seen.
type lateWrite struct {
	firstWrite
	asked *atomic.Int64
	begin sync.Once
}

func (l *lateWrite) Write(b []byte) (int, error) {
	n, err := l.w.Write(b)
	l.begin.Do(func() {
		from := l.asked.Load()
		go func() {
			for l.asked.Load() < from+2*waitLineEvery {
				time.Sleep(time.Millisecond) // a counter announces nothing, and only the test itself may fail it
			}
			close(l.done)
		}()
	})
	return n, err
}
