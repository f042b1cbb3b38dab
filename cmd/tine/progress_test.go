package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// What a server says of its progress is seen while it works, on a terminal and in a
// log, and nothing of it is obeyed.
func TestCallShowsProgress(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		said := make(chan struct{})
		f := world()
		f.stream = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			fmt.Fprintln(w, `{"progress":{"progress":3,"total":10,"message":"half\u001b[2J way\nthere"}}`)
			http.NewResponseController(w).Flush()
			<-said
			fmt.Fprintln(w, `{"result":{"content":[{"type":"text","text":"done"}]}}`)
		}
		tc := newTestCLI(t, "call", "files__draw")
		tc.env["TINE_URL"] = f.start(t)
		tc.errTerminal = terminal
		passed := make(chan time.Time)
		close(passed)
		tc.after = func(time.Duration) <-chan time.Time { return passed }
		seen := &firstWrite{w: &tc.err, what: "calling files__draw: 3 of 10, half", done: said}
		if terminal {
			seen.what += "^[[2J way there"
		}
		tc.stderr = seen
		if code := tc.cli.run(t.Context()); code != 0 || tc.out.String() != "done\n" {
			t.Errorf("exit %d, %q, %q", code, tc.out.String(), tc.err.String())
		}
	}
}

// The error of a call that has told of its progress is one like any other.
func TestCallFailsAfterProgress(t *testing.T) {
	for answer, want := range map[string]string{
		`{"error":{"kind":"timeout","message":"no answer within 5s","server":"files","retryable":true},"status":504}`: "no answer within 5s (timeout; another try can help)",
		``:  "unknown",
		`x`: "check the URL",
	} {
		f := world()
		f.stream = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			fmt.Fprintf(w, "%s\n\n%s", `{"progress":{"progress":1}}`, answer)
		}
		if _, stderr, code := run(t, f.start(t), "call", "files__draw"); code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q", answer, code, stderr)
		}
	}
}

func TestProgressText(t *testing.T) {
	for want, p := range map[string]api.CallProgress{
		"3":                {Progress: 3},
		"0.5 of 1":         {Progress: 0.5, Total: 1},
		"3 of 10, reading": {Progress: 3, Total: 10, Message: " reading\n"},
	} {
		if got := progressText(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
