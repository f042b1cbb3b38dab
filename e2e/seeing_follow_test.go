//go:build unix

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/e2e/teller"
)

// follower is a tine calls --follow --json that runs.
type follower struct {
	mu     sync.Mutex
	calls  []api.Call
	bad    string // a line that is no call
	ended  bool
	stderr strings.Builder
}

// startFollow runs tine calls --follow and ends it with the test.
func (g *gateway) startFollow(t testing.TB, args ...string) *follower {
	t.Helper()
	f := &follower{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, tineBinary, append([]string{"calls", "--follow", "--json", "--state", g.state()}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = &f.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var c api.Call
			err := json.Unmarshal(lines.Bytes(), &c)
			f.mu.Lock()
			if err != nil || c.ID == "" {
				f.bad = lines.Text()
			}
			f.calls = append(f.calls, c)
			f.mu.Unlock()
		}
		f.mu.Lock()
		f.ended = true
		f.mu.Unlock()
	}()
	t.Cleanup(func() {
		cancel()
		<-read
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			t.Errorf("tine calls --follow: %v", err)
		}
		if t.Failed() {
			t.Logf("tine calls --follow said: %s", tail(f.stderr.String(), 2<<10))
		}
	})
	return f
}

func (f *follower) seen() []api.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// until waits for a call to be printed.
func (f *follower) until(t testing.TB, what string, is func(api.Call) bool) []api.Call {
	t.Helper()
	var all []api.Call
	if err := eventually(func() error {
		f.mu.Lock()
		ended := f.ended
		f.mu.Unlock()
		if all = f.seen(); slices.ContainsFunc(all, is) {
			return nil
		}
		if ended {
			return final{fmt.Errorf("tine calls --follow ended before %s was printed", what)}
		}
		return fmt.Errorf("%s is not among the %d calls that were printed", what, len(all))
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// same holds what was printed against the journal: everything from the first
// printed call on, each once, in the journal's order.
func (f *follower) same(t *testing.T, journal []api.Call) {
	t.Helper()
	f.mu.Lock()
	got, bad := slices.Clone(f.calls), f.bad
	f.mu.Unlock()
	if bad != "" {
		t.Errorf("printed %q", bad)
	}
	journal = slices.Clone(journal)
	slices.Reverse(journal)
	at := slices.IndexFunc(journal, func(c api.Call) bool { return c.ID == got[0].ID })
	if at < 0 {
		t.Fatalf("the first call that was printed, %s, is not in the journal", got[0].ID)
	}
	place := make(map[string]int, len(journal))
	for i, c := range journal {
		place[c.ID] = i
	}
	printed := make(map[string]bool, len(got))
	disorder, twice := 0, 0
	for i, c := range got {
		if printed[c.ID] {
			twice++
		}
		printed[c.ID] = true
		if i > 0 && place[c.ID] < place[got[i-1].ID] {
			if disorder++; disorder == 1 {
				t.Errorf("call %d of the journal is printed after call %d", place[c.ID], place[got[i-1].ID])
			}
		}
	}
	missing := 0
	for _, c := range journal[at:] {
		if !printed[c.ID] {
			missing++
		}
	}
	if missing > 0 || disorder > 0 || twice > 0 {
		t.Errorf("of %d calls since the first that was printed %d are missing, %d out of order, %d printed twice", len(journal)-at, missing, disorder, twice)
	}
}

// TestFollowKeepsUp follows while many clients call, from the middle on, over
// several files of the journal.
func TestFollowKeepsUp(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "journal: {max_size: 32MiB}\nservers:\n  web: {url: "+tellHTTP(t, &teller.Server{})+", "+quiet+"}\n")
	l := newLoad(t, g.url+"/mcp/web", strings.Repeat("x", 3<<10))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx, 8) })
	l.wait(t, 200)
	all := []*follower{g.startFollow(t), g.startFollow(t, "--limit", "1"), g.startFollow(t, "--limit", "3")}
	for _, f := range all {
		f.until(t, "the first", func(api.Call) bool { return true })
	}
	l.wait(t, l.count.Load()+1500)
	cancel()
	running.Wait()
	if err := l.one(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := fmt.Sprintf("word-%d.", l.made.Load())
	for _, f := range all {
		f.until(t, "the last", func(c api.Call) bool { return wordOf(t, c) == last })
	}
	if n := len(g.segments(t)); n < 3 {
		t.Errorf("%d files: the journal did not go on to another one", n)
	}
	journal := g.journal(t, client.CallQuery{})
	for _, f := range all {
		f.same(t, journal)
	}
}

// TestFollowRestart follows over the death and the return of the gateway.
func TestFollowRestart(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n  web: {url: "+tellHTTP(t, &teller.Server{})+", "+quiet+"}\n")
	l := newLoad(t, g.url+"/mcp/web", "")
	if err := l.one(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := g.startFollow(t)
	f.until(t, "the first", func(api.Call) bool { return true })
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		before := l.count.Load()
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx, 8) })
		l.wait(t, before+500)
		g.kill()
		cancel()
		running.Wait()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		for range 20 { // before the follower is back
			if err := l.one(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		last := fmt.Sprintf("word-%d.", l.made.Load())
		f.until(t, "the last", func(c api.Call) bool { return wordOf(t, c) == last })
	}
	f.same(t, g.journal(t, client.CallQuery{}))
}

// TestFollowChooses follows with filters, also as a principal that sees only what
// is its own.
func TestFollowChooses(t *testing.T) {
	t.Parallel()
	const ada, bob = "ada-ada-ada-ada-ada", "bob-bob-bob-bob-bob"
	web := tellHTTP(t, &teller.Server{})
	g := startGateway(t, "auth: {tokens: [{name: ada, token: "+ada+"}, {name: bob, token: "+bob+"}]}\n"+
		"servers:\n  one: {url: "+web+", "+quiet+"}\n  two: {url: "+web+", "+quiet+"}\n")
	sessions := map[string]*session{}
	for name, token := range map[string]string{"ada": ada, "bob": bob} {
		s, err := open(t.Context(), g.url+"/mcp", bearer(token))
		if err != nil {
			t.Fatal(err)
		}
		sessions[name] = s
		s.mustCall(t, "one__echo", map[string]any{"word": "early"})
	}
	followers := map[string]*follower{
		"one":    g.startFollow(t, "--server", "one"),
		"failed": g.startFollow(t, "--failed"),
		"of ada": g.startFollow(t, "--principal", "ada"),
		"as bob": g.startFollow(t, "--token", bob),
	}
	// Each says that it is there with the calls that were made before.
	sessions["bob"].call(t.Context(), "one__fail", map[string]any{"word": "start"})
	sessions["ada"].call(t.Context(), "one__fail", map[string]any{"word": "start"})
	for name, f := range followers {
		f.until(t, name+": start", func(c api.Call) bool { return wordOf(t, c) == "start" })
	}
	for _, name := range []string{"ada", "bob"} {
		for _, tool := range []string{"one__echo", "two__echo", "one__fail", "two__fail", "one__refuse"} {
			_, _ = sessions[name].call(t.Context(), tool, map[string]any{"word": name + " " + tool}) // refuse is an error
		}
	}
	for _, name := range []string{"ada", "bob"} { // every one of them sees one of these
		_, _ = sessions[name].call(t.Context(), "one__fail", map[string]any{"word": "end"})
	}
	for name, f := range followers {
		f.until(t, name+": end", func(c api.Call) bool { return wordOf(t, c) == "end" })
		want := map[string]func(who, tool string) bool{
			"one":    func(_, tool string) bool { return strings.HasPrefix(tool, "one") },
			"failed": func(_, tool string) bool { return !strings.HasSuffix(tool, "echo") },
			"of ada": func(who, _ string) bool { return who == "ada" },
			"as bob": func(who, _ string) bool { return who == "bob" },
		}[name]
		got := map[string]bool{}
		for _, c := range f.seen() {
			got[wordOf(t, c)] = true
			if name == "as bob" && c.Principal != "bob" {
				t.Errorf("bob is shown a call of %s", c.Principal)
			}
		}
		for _, who := range []string{"ada", "bob"} {
			for _, tool := range []string{"one__echo", "two__echo", "one__fail", "two__fail", "one__refuse"} {
				if got[who+" "+tool] != want(who, tool) {
					t.Errorf("%s: %s of %s printed: %v", name, tool, who, got[who+" "+tool])
				}
			}
		}
	}
}
