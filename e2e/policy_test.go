//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// faultServer builds the server that dies on demand, once.
var faultServer = built("faultserver")

// A faulty is a gateway in front of one that dies, and what it wrote down.
type faulty struct {
	*gateway
	calls string
}

func startFaulty(t *testing.T, args []string, more ...string) *faulty {
	t.Helper()
	program, err := faultServer()
	if err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(t.TempDir(), "calls")
	config := "servers:\n" + yamlServer("f", program, append([]string{"-calls", calls}, args...), more...)
	return &faulty{startGateway(t, config), calls}
}

// count tells how often a call reached the server.
func (f *faulty) count(t testing.TB, tool, key string) int {
	t.Helper()
	all, err := os.ReadFile(f.calls)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(all), tool+" "+key+" ")
}

func args(do, key string, more ...any) map[string]any {
	m := map[string]any{"do": do, "key": key}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// TestProgramsThatDieInACall kills a program in the middle of calls: each reaches
// it once, except that one which changes nothing is made again at the next program
// where the config says that there is nothing to remember. Each call has a session,
// and so a program, of its own.
func TestProgramsThatDieInACall(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, nil, "policy: {retry: {pause: 1ms}}", "timeout: 20s")
	forgets := startFaulty(t, nil, "policy: {retry: {pause: 1ms}}", "timeout: 20s", "state: none")
	var wg sync.WaitGroup
	for _, do := range []string{"die", "half"} {
		for _, tool := range []string{"plain", "destroys", "adds", "reads", "sets"} {
			wg.Go(func() {
				s := mustOpen(t, f.url+"/mcp/f")
				r, err := s.call(t.Context(), tool, args(do, do))
				if err != nil {
					t.Errorf("%s, %s: %v", tool, do, err)
					return
				}
				if e := r.tineError(t); e == nil || e.Kind != api.KindLost || e.Server != "f" {
					t.Errorf("%s, %s: %+v, want kind lost", tool, do, e)
				}
				if n := f.count(t, tool, do); n != 1 {
					t.Errorf("%s, %s: reached the server %d times", tool, do, n)
				}
				// The next one finds a new program.
				if s.mustCall(t, tool, args("", do+"-after")) == "" {
					t.Errorf("%s, %s: no answer afterwards", tool, do)
				}
			})
		}
		for _, tool := range []string{"reads", "sets"} {
			wg.Go(func() {
				f := forgets
				s := mustOpen(t, f.url+"/mcp/f")
				s.mustCall(t, tool, args(do, do, "times", 1))
				if n := f.count(t, tool, do); n != 2 {
					t.Errorf("%s, %s once: reached the server %d times, want 2", tool, do, n)
				}
				r, err := s.call(t.Context(), tool, args(do, do+"-always"))
				if err != nil {
					t.Errorf("%s, %s always: %v", tool, do, err)
					return
				}
				if e := r.tineError(t); e == nil || e.Kind != api.KindLost {
					t.Errorf("%s, %s always: %+v, want kind lost", tool, do, e)
				}
				if n := f.count(t, tool, do+"-always"); n < 2 || n > 3 {
					t.Errorf("%s, %s always: reached the server %d times, want up to 3", tool, do, n)
				}
			})
		}
	}
	wg.Wait()
}

// TestProgramKilledInACall kills it from outside.
func TestProgramKilledInACall(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"", "state: none"} {
		programKilledInACall(t, state)
	}
}

func programKilledInACall(t *testing.T, state string) {
	t.Helper()
	keys := []string{"policy: {retry: {pause: 1ms}}", "timeout: 30s"}
	if state != "" {
		keys = append(keys, state)
	}
	f := startFaulty(t, nil, keys...)
	for _, tool := range []string{"plain", "reads"} {
		s := mustOpen(t, f.url+"/mcp/f")
		pid, err := strconv.Atoi(s.mustCall(t, "plain", args("", "pid-"+tool)))
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan toolResult, 1)
		go func() {
			r, err := s.call(t.Context(), tool, args("hang", "killed", "times", 1))
			if err != nil {
				t.Error(err)
			}
			answered <- r
		}()
		if err := eventually(func() error {
			if f.count(t, tool, "killed") == 0 {
				return fmt.Errorf("%s has not arrived", tool)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r, n := <-answered, f.count(t, tool, "killed")
		if tool == "plain" || state == "" {
			if e := r.tineError(t); e == nil || e.Kind != api.KindLost || n != 1 {
				t.Errorf("a call arrived %d times and got %+v, want once and lost", n, e)
			}
		} else if r.IsError || n != 2 || r.text() == strconv.Itoa(pid) {
			t.Errorf("a read arrived %d times and got %q", n, r.text())
		}
	}
}

// TestTimeoutsOfPrograms has a program that takes long, with and without a sign
// of life.
func TestTimeoutsOfPrograms(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, nil, "timeout: 2s", "policy: {max_timeout: 6s, retry: {pause: 1ms}}")
	s := mustOpen(t, f.url+"/mcp/f")
	s.mustCall(t, "plain", args("", "start"))
	call := func(tool string, a map[string]any) (toolResult, error) {
		r, err := post(t.Context(), s.url, s.header, fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"mine"}}}`,
			tool+"-"+a["key"].(string), tool, mustJSON(t, a)))
		if err != nil {
			return toolResult{}, err
		}
		m, err := r.answer()
		if err != nil {
			return toolResult{}, err
		}
		var out toolResult
		return out, decodeInto(m.Result, &out)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if r, err := call("plain", args("work", "works", "ms", 4500)); err != nil || r.IsError {
			t.Errorf("with progress beyond the timeout: %v, %s", err, r.text())
		}
	})
	for tool, a := range map[string]map[string]any{"reads": args("hang", "hangs"), "plain": args("hang", "hangs"), "sets": args("work", "endless", "ms", 60_000)} {
		wg.Go(func() {
			r, err := call(tool, a)
			if e := r.tineError(t); err != nil || e == nil || e.Kind != api.KindTimeout {
				t.Errorf("%s, %v: %v, %+v, want kind timeout", tool, a, err, e)
			}
			if n := f.count(t, tool, a["key"].(string)); n != 1 {
				t.Errorf("%s, %v: reached the server %d times", tool, a, n)
			}
		})
	}
	wg.Wait()
	// The program itself lives on.
	if out, err := f.tine(t.Context(), "servers", "show", "f", "--json"); err != nil || strings.Contains(out, `"state": "failed"`) {
		t.Errorf("%v\n%s", err, out)
	}
	s.mustCall(t, "plain", args("", "after"))
}

// TestCallsWaitForASlowStart has a program that takes its time before it listens.
func TestCallsWaitForASlowStart(t *testing.T) {
	t.Parallel()
	// The call's own timeout is shorter than the start, and counts from there.
	f := startFaulty(t, []string{"-slow", "3s"}, "timeout: 2s", "connect_timeout: 50s")
	s := mustOpen(t, f.url+"/mcp")
	if s.mustCall(t, "f__plain", args("", "slow")) == "" {
		t.Error("no answer")
	}
	if n := f.count(t, "plain", "slow"); n != 1 {
		t.Errorf("reached the server %d times", n)
	}
}

// TestBreakerOfOneSessionsProgram has the program of one session die again and
// again: the programs of others have breakers of their own.
func TestBreakerOfOneSessionsProgram(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, nil, "policy: {retry: off, breaker: {failures: 2, open: 1h}}")
	bad, good := mustOpen(t, f.url+"/mcp/f"), mustOpen(t, f.url+"/mcp/f")
	good.mustCall(t, "plain", args("", "good"))
	for i := range 2 {
		r, err := bad.call(t.Context(), "plain", args("die", "bad"))
		if err != nil {
			t.Fatal(err)
		}
		if e := r.tineError(t); e == nil || e.Kind != api.KindLost {
			t.Errorf("call %d: %+v", i, e)
		}
	}
	r, err := bad.call(t.Context(), "plain", args("die", "bad"))
	if err != nil {
		t.Fatal(err)
	}
	if e := r.tineError(t); e == nil || e.Kind != api.KindInfrastructure || e.RetryAfter < 1 || f.count(t, "plain", "bad") != 2 {
		t.Errorf("the third arrived too (%d) or got %+v", f.count(t, "plain", "bad"), e)
	}
	good.mustCall(t, "plain", args("", "good"))
	mustOpen(t, f.url+"/mcp/f").mustCall(t, "plain", args("", "good"))
	out, err := f.tine(context.Background(), "servers", "show", "f")
	if err != nil || !strings.Contains(out, "open") {
		t.Errorf("tine servers show says nothing of the breaker: %v\n%s", err, out)
	}
}
