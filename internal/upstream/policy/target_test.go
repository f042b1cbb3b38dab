package policy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

// listing makes a server whose public list of tools has one, with or without a
// promise that it changes nothing.
func listing(name string, readOnly bool) *server {
	return &server{
		tools: fmt.Sprintf(`{"cacheScope":"public","from":%q,"tools":[{"name":"look","annotations":{"readOnlyHint":%v}}]}`, name, readOnly),
		reply: func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
			return &upstream.Result{Result: fmt.Appendf(nil, `{"n":"%d"}`, n)}, nil
		},
	}
}

func listed(t *testing.T, c upstream.Caller, who string) string {
	t.Helper()
	res, err := c.Call(t.Context(), request(t, who, wire.MethodListTools, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	return wire.FindString(res.Result, "from")
}

// looked reports whether a second call of a tool came out of memory.
func looked(t *testing.T, c upstream.Caller) bool {
	t.Helper()
	var got [2]string
	for i := range got {
		res, err := c.Call(t.Context(), tool(t, "a", "look"))
		if err != nil {
			t.Fatal(err)
		}
		got[i] = wire.FindString(res.Result, "n")
	}
	return got[0] == got[1]
}

// A chain that drains after a reload talks to the server as it was. What it learns
// must not reach chains that talk to the server as it is now.
func TestOldChainsTeachNothing(t *testing.T) {
	before, after := listing("before", true), listing("after", false)
	s, _ := world(t, config.Policy{Cache: config.Cache{Lists: time.Hour, Results: time.Hour}})
	old := s.Chain(before, policy.ChainOptions{Of: "1"})
	if got := listed(t, old, "a"); got != "before" || !looked(t, old) {
		t.Fatalf("the list is from %q", got)
	}
	s.Forget()
	now := s.Chain(after, policy.ChainOptions{Of: "2"})
	// The old one puts back what was forgotten, for itself.
	if got := listed(t, old, "a"); got != "before" || !looked(t, old) {
		t.Errorf("the list of the old one is from %q", got)
	}
	if got := listed(t, now, "b"); got != "after" {
		t.Errorf("the list is from %q", got)
	}
	if looked(t, now) {
		t.Error("a tool that changes things was answered from memory, by what the old server said of it")
	}
	// What one of them hears of is the business of its own.
	n := before.count("tools/list")
	now.Note(wire.NoteToolsChanged)
	_ = listed(t, old, "a")
	if before.count("tools/list") != n {
		t.Error("the old one asked again for what changed at the new one")
	}
	old.Close()
	old.Close()
	next := s.Chain(after, policy.ChainOptions{Of: "2"})
	now.Close()
	last := s.Chain(after, policy.ChainOptions{Of: "2"})
	_ = listed(t, last, "c")
	n = after.count("tools/list")
	if listed(t, next, "d"); after.count("tools/list") != n {
		t.Error("chains of the same don't share their public list")
	}
	next.Close()
	last.Close()
	if listed(t, s.Chain(after, policy.ChainOptions{Of: "2"}), "e"); after.count("tools/list") != n {
		t.Error("the public list went with the last chain of what is in use")
	}
}

// After a login the server sees another user in us, also on earlier connections.
func TestForgetReachesAllChains(t *testing.T) {
	for _, own := range []bool{false, true} {
		readOnly := true
		up := &server{reply: func(_ context.Context, req *upstream.Request, n int) (*upstream.Result, error) {
			if req.Method == wire.MethodListTools {
				return &upstream.Result{Result: fmt.Appendf(nil, `{"tools":[{"name":"look","annotations":{"readOnlyHint":%v}}]}`, readOnly)}, nil
			}
			return &upstream.Result{Result: fmt.Appendf(nil, `{"n":"%d"}`, n)}, nil
		}}
		s, _ := world(t, keepsResults())
		chain := s.Chain(up, policy.ChainOptions{Own: own})
		if !looked(t, chain) {
			t.Fatal("nothing is kept")
		}
		readOnly = false
		s.Forget()
		if looked(t, chain) {
			t.Errorf("own %v: the tool has the hints of another user", own)
		}
	}
}

// A list that was asked for before is not given to later callers.
func TestForgetWhileAListIsFetched(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	up := &server{reply: func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
		if n == 1 {
			close(asked)
			<-release
		}
		return &upstream.Result{Result: fmt.Appendf(nil, `{"from":"%d","tools":[]}`, n)}, nil
	}}
	s, _ := world(t, keeps(time.Hour))
	chain := s.Chain(up, policy.ChainOptions{})
	first := make(chan error, 1)
	go func() {
		_, err := chain.Call(context.Background(), request(t, "a", wire.MethodListTools, `{}`))
		first <- err
	}()
	<-asked
	s.Forget()
	// A caller that joined the first request would wait until the timer releases
	// it.
	waiting := time.AfterFunc(10*time.Second, func() { close(release) })
	if got := listed(t, chain, "a"); got != "2" {
		t.Fatalf("who asks after the login got list %s", got)
	}
	if waiting.Stop() {
		close(release)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got := listed(t, chain, "a"); got != "2" {
		t.Errorf("list %s was kept", got)
	}
}

func TestSlashesInToolPatterns(t *testing.T) {
	for pattern, want := range map[string]bool{"admin*": true, "admin/*": true, "admin": false, "a?min[/]l*": true} {
		up := &server{tools: `{"tools":[{"name":"admin/list","annotations":{"readOnlyHint":true}}]}`,
			reply: func(_ context.Context, _ *upstream.Request, n int) (*upstream.Result, error) {
				return &upstream.Result{Result: fmt.Appendf(nil, `{"n":"%d"}`, n)}, nil
			}}
		s, _ := world(t, keepsResults(pattern))
		chain := s.Chain(up, policy.ChainOptions{})
		for range 2 {
			if _, err := chain.Call(t.Context(), tool(t, "a", "admin/list")); err != nil {
				t.Fatal(err)
			}
		}
		if got := up.count("tools/call admin/list") == 1; got != want {
			t.Errorf("%s: kept %v", pattern, got)
		}
	}
}
