package gateway_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// reload takes another config over, as a changed file would.
func (w *world) reload(t *testing.T, yaml string) {
	t.Helper()
	w.yaml = yaml
	cfg := parse(t, yaml)
	if err := w.rg.Apply(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := w.gw.Reload(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	w.gw.Secrets()
}

// TestReloadTouchesOnlyWhatChanged keeps a call running while servers are added
// and removed beside it.
func TestReloadTouchesOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	stays, started, release := blocking(t, true)
	goes, comes := echoServer(t, false, "old"), echoServer(t, true, "new")
	w := open(t, servers("stays", stays.URL, "goes", goes.URL))
	c := w.dial(t, "/mcp", `{}`)
	c.get("tools/list", `{}`)
	heard := c.listen()
	view := w.dial(t, "/mcp/goes", `{}`)
	var wg sync.WaitGroup
	wg.Go(func() {
		if got := resultText(t, c.ask("tools/call", `{"name":"stays__hold"}`)); got != "done" {
			t.Errorf("the running call got %q", got)
		}
	})
	take(t, started)
	w.reload(t, servers("comes", comes.URL, "stays", stays.URL))
	heard.until("notifications/tools/list_changed")
	if got := names(tools(t, w, "/mcp")); !slices.Equal(got, []string{"comes__new", "stays__hold", "stays__free"}) {
		t.Errorf("listed %q", got)
	}
	if got := resultText(t, c.ask("tools/call", `{"name":"comes__new"}`)); got != "done" {
		t.Errorf("the new server answered %q", got)
	}
	if e := c.ask("tools/call", `{"name":"goes__old"}`).failure(t); e.Code != -32602 {
		t.Errorf("a call of the server that is gone: %+v", e)
	}
	if r := view.request("tools/list", `{}`); r.status != http.StatusNotFound {
		t.Errorf("its own view: status %d %s", r.status, r.body)
	}
	close(release)
	wg.Wait()
	if n := len(goes.of("tools/call")); n != 0 {
		t.Errorf("the server that is gone got %d calls", n)
	}
}

// TestReloadOfACallsOwnServer changes the server a call is at: the call ends in
// its own time, and the next one goes by the new entry.
func TestReloadOfACallsOwnServer(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	other := echoServer(t, true, "hold")
	w := open(t, servers("a", up.URL))
	c := w.dial(t, "/mcp/a", `{}`)
	var wg sync.WaitGroup
	wg.Go(func() {
		if got := resultText(t, c.ask("tools/call", `{"name":"hold"}`)); got != "done" {
			t.Errorf("the running call got %q", got)
		}
	})
	take(t, started)
	w.reload(t, servers("a", other.URL))
	if got := resultText(t, c.ask("tools/call", `{"name":"hold"}`)); got != "done" {
		t.Errorf("got %q", got)
	}
	if n := len(other.of("tools/call")); n != 1 {
		t.Errorf("the new address got %d calls, want 1", n)
	}
	close(release)
	wg.Wait()
}

func TestReloadOfTokensAndShapes(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one", "two")
	w := open(t, twoPeople+servers("a", up.URL))
	list := func(who ...string) *reply {
		return w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json"}, who...)...)
	}
	if r := list(asBob...); r.status != http.StatusOK {
		t.Fatalf("status %d", r.status)
	}
	c := w.dial(t, "/mcp", `{}`, asBob...)
	w.reload(t, "auth: {tokens: [{name: ada, token: ada-ada-ada-ada-ada}]}\n"+servers("a", `{url: "`+up.URL+`", tools: {deny: [one]}}`))
	if r := list(asBob...); r.status != http.StatusUnauthorized {
		t.Errorf("a token that is gone: status %d", r.status)
	}
	if r := c.request("tools/list", `{}`); r.status != http.StatusUnauthorized {
		t.Errorf("a client whose token is gone: status %d", r.status)
	}
	var got struct{ Tools []listedTool }
	decode(t, list(asAda...).answer().Result, &got)
	if !slices.Equal(names(got.Tools), []string{"a__two"}) {
		t.Errorf("listed %q", names(got.Tools))
	}
}

// TestSinceOfAnAddedServer checks that a server is there since it was added, and not
// since the gateway started.
func TestSinceOfAnAddedServer(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "new")
	since := func(w *world, id string) time.Time {
		var s api.Server
		decode(t, w.do(t, "GET", "/v1/servers/"+id, "").body, &s)
		return s.Since
	}
	w := open(t, servers("old", up.URL))
	was := since(w, "old")
	before := time.Now()
	w.reload(t, servers("old", up.URL, "young", up.URL))
	if got := since(w, "young"); got.Before(before) {
		t.Errorf("the new server is there since %s, before it was added at %s", got, before)
	}
	if got := since(w, "old"); got.IsZero() || !got.Equal(was) || got.After(before) {
		t.Errorf("the old server is there since %s, and was since %s", got, was)
	}
}
