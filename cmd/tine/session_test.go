package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// answered runs a command on a terminal where a person types an answer.
func answered(t *testing.T, url, answer string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	tc := newTestCLI(t, args...)
	tc.env["TINE_URL"] = url
	tc.inTerminal, tc.errTerminal, tc.stdin = true, true, strings.NewReader(answer)
	code = tc.cli.run(t.Context())
	return tc.out.String(), tc.err.String(), code
}

// What can't be undone is asked about, with what it would do.
func TestSessionQuestions(t *testing.T) {
	f := world().withNames()
	var changes atomic.Int32
	f.seen = func(r *http.Request) {
		if r.Method != http.MethodGet {
			changes.Add(1)
		}
	}
	url := f.start(t)
	for _, tt := range []struct {
		line, asks string
		changes    int32
	}{
		{"session rewind 0a", "ses_0a0000000001 goes back to snp_0000000000b2, made 2m ago; all later changes, by 2 calls, are lost.\nRewind it? [y/N] ", 1},
		{"session rewind 0a base", "(base), made 26h ago; all later changes, by 2 calls, are lost", 1},
		{"session rewind 0a other", "snp_00000000c003 (other), made 3d ago; all later changes are lost", 1},
		{"session close default 0a", "ses_0d0000000005 is session \"default\": the memory, files and tables that all connections of bob share are gone with it.\nClose it for good? [y/N] ", 2},
		{"session rm work", "ses_0f0000000007 is session \"work\": the memory, files and tables that all connections of bob to it share are gone with it.\nClose it for good? [y/N] ", 1},
		{"session close --all", "Close 3 sessions: ses_0a0000000001, ses_0b0000000002, ses_0c0000000004? [y/N] ", 3},
	} {
		changes.Store(0)
		_, stderr, code := answered(t, url, "n\n", strings.Split(tt.line, " ")...)
		if code != exitFailed || !strings.Contains(stderr, tt.asks) || changes.Load() != 0 {
			t.Errorf("%s, no: exit %d, %d changes, %q", tt.line, code, changes.Load(), stderr)
		}
		if _, stderr, code = answered(t, url, "yes\n", strings.Split(tt.line, " ")...); code != 0 || changes.Load() != tt.changes {
			t.Errorf("%s, yes: exit %d, %d changes, %q", tt.line, code, changes.Load(), stderr)
		}
	}
	changes.Store(0)
	if _, stderr, code := run(t, url, "session", "close", "default", "0a"); code != exitUsage || !strings.Contains(stderr, "add --yes") || changes.Load() != 0 {
		t.Errorf("without a terminal: exit %d, %d changes, %q", code, changes.Load(), stderr)
	}
	for _, line := range []string{"session close default --yes", "session close 0f2"} {
		if _, stderr, code := run(t, url, strings.Split(line, " ")...); code != 0 {
			t.Errorf("%s: exit %d, %q", line, code, stderr)
		}
	}
	if _, stderr, code := answered(t, url, "", "session", "close", "--all", "--label", "run=7"); code != 0 || strings.Contains(stderr, "[y/N]") {
		t.Errorf("chosen by label: exit %d, %q", code, stderr)
	}
}

func TestExportToATerminal(t *testing.T) {
	tc := newTestCLI(t, "session", "export", "base", "-o", "-")
	tc.env["TINE_URL"] = world().start(t)
	tc.outTerminal, tc.width = true, 80
	if code := tc.cli.run(t.Context()); code != exitUsage || tc.out.Len() > 0 || !strings.Contains(tc.err.String(), "--out") {
		t.Errorf("exit %d, %q, %q", code, tc.out.String(), tc.err.String())
	}
}

// Of many that are opened those that were are printed, also when one fails.
func TestOpenMany(t *testing.T) {
	f := world()
	url := f.start(t)
	stdout, stderr, code := run(t, url, "session", "open", "--count", "40")
	seen := map[string]bool{}
	for _, id := range strings.Fields(stdout) {
		seen[id] = true
	}
	if code != 0 || len(seen) != 40 || strings.Contains(stderr, "tine_") {
		t.Errorf("exit %d, %d ids, %q", code, len(seen), stderr)
	}
	var asked atomic.Int32
	f.sessions.refuse = func() bool { return asked.Add(1) > 5 }
	stdout, stderr, code = run(t, url, "session", "open", "--count", "100")
	if n := len(strings.Fields(stdout)); code != exitFailed || n != 5 || !strings.Contains(stderr, "opened 5 of 100 sessions") {
		t.Errorf("exit %d, %d ids, %q", code, n, stderr)
	}
	if n := asked.Load(); n > 5+atOnce {
		t.Errorf("%d were asked for after one was refused", n)
	}
}

// A connection that breaks before the answer is no reason to create twice.
func TestOnce(t *testing.T) {
	broken := fmt.Errorf("request broke off: %w", io.ErrUnexpectedEOF)
	away := fmt.Errorf("%w at x", client.ErrNoGateway)
	busy := &api.Error{Kind: api.KindRefused, Status: http.StatusConflict, Retryable: true}
	full := &api.Error{Kind: api.KindRefused, Status: http.StatusTooManyRequests, Retryable: true}
	for _, tt := range []struct {
		name  string
		errs  []error // one after the other, then none
		tries int
		want  error
	}{
		{"at once", nil, 1, nil},
		{"broken off, away, pending", []error{broken, away, busy}, 4, nil},
		{"never there", []error{away}, 1, away},
		{"refused", []error{full}, 1, full},
		{"refused after all", []error{broken, full}, 2, full},
		{"broken for good", []error{broken, broken, broken, broken, broken, broken}, createTries, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tc := newTestCLI(t)
			passed := make(chan time.Time)
			close(passed)
			tc.after = func(time.Duration) <-chan time.Time { return passed }
			tries := 0
			_, err := once(t.Context(), tc.cli, func(client.CreateOption) (int, error) {
				tries++
				if tries > len(tt.errs) {
					return 7, nil
				}
				return 0, tt.errs[tries-1]
			})
			if tries != tt.tries || !errors.Is(err, tt.want) {
				t.Errorf("%d tries, %v", tries, err)
			}
		})
	}
}

func TestInParallel(t *testing.T) {
	var did atomic.Int32
	if err := inParallel(t.Context(), 1000, func(int) error { did.Add(1); return nil }); err != nil || did.Load() != 1000 {
		t.Errorf("%d of 1000, %v", did.Load(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := inParallel(ctx, 3, func(int) error { t.Error("begun after the end"); return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := inParallel(t.Context(), 0, nil); err != nil {
		t.Error(err)
	}
}

// How far something is shows on a terminal, when it takes long, and goes away.
func TestProgress(t *testing.T) {
	tc := newTestCLI(t)
	now := testNow
	tc.now = func() time.Time { return now }
	for _, terminal := range []bool{false, true} {
		tc.err.Reset()
		tc.errTerminal = terminal
		p := tc.counting("opened", 1000)
		p.add(1)
		if tc.err.Len() > 0 {
			t.Errorf("it shows at once: %q", tc.err.String())
		}
		now = now.Add(time.Second)
		p.add(999)
		p.add(1) // too soon to be drawn
		p.stop()
		p.stop()
		p.add(1)
		want := ""
		if terminal {
			want = "\ropened 1000 of 1000\r" + strings.Repeat(" ", len("opened 1000 of 1000")) + "\r"
		}
		if got := tc.err.String(); got != want {
			t.Errorf("terminal %t: %q, want %q", terminal, got, want)
		}
	}
}

func TestWaiting(t *testing.T) {
	tc := newTestCLI(t)
	tc.errTerminal = true
	tick, drawn := make(chan time.Time), make(chan struct{})
	asked := 0
	tc.after = func(time.Duration) <-chan time.Time {
		if asked++; asked == 2 {
			close(drawn)
		}
		return tick
	}
	tc.waiting(t.Context(), "forking", func() {
		tick <- time.Time{}
		<-drawn
	})
	if got := tc.err.String(); !strings.HasPrefix(got, "\rforking (0s)") || !strings.HasSuffix(got, " \r") {
		t.Errorf("%q", got)
	}
}

func TestUTF8Locale(t *testing.T) {
	for _, tt := range []struct {
		goos string
		env  map[string]string
		want bool
	}{
		{"linux", nil, false},
		{"windows", nil, true},
		{"linux", map[string]string{"LANG": "en_US.UTF-8"}, true},
		{"darwin", map[string]string{"LC_CTYPE": "C.utf8", "LANG": "C"}, true},
		{"linux", map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, false},
	} {
		if got := utf8Locale(tt.goos, func(k string) string { return tt.env[k] }); got != tt.want {
			t.Errorf("%s %v: %t", tt.goos, tt.env, got)
		}
	}
}

func TestSizesAndSpans(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 20 << 10: "20 KiB", 1 << 20: "1.0 MiB", 3 << 30: "3.0 GiB", 5000 << 40: "5000 TiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{24 * time.Hour: "24h", 90 * time.Minute: "1h30m", 30 * time.Second: "30s", time.Hour + time.Second: "1h0m1s", 10 * time.Minute: "10m"} {
		if got := spanText(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

// What is lost of an open session is not answered with what helps for a closed one.
func TestMendSession(t *testing.T) {
	lost := mendSession(&api.Error{Kind: api.KindLost, Server: "kernel", Status: http.StatusGone, Message: "gone; put it back"})
	closed := mendSession(&api.Error{Kind: api.KindInvalid, Status: http.StatusGone, Message: "closed"})
	over := mendSession(&api.Error{Kind: api.KindLost, Status: http.StatusGone, Message: "its time to live was over"})
	if strings.Contains(lost.Error(), "opens another") || !strings.Contains(closed.Error(), "opens another") || !strings.Contains(over.Error(), "opens another") {
		t.Errorf("%v\n%v\n%v", lost, closed, over)
	}
}
