package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// The lists that servers have, with the member that holds their items.
var listsOf = map[string]string{
	"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates",
}

// listed renders a list result with one item of a name. More are members of the
// result, such as ttlMs.
func listed(method, name string, more ...string) string {
	item := fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name)
	switch method {
	case "prompts/list":
		item = fmt.Sprintf(`{"name":%q}`, name)
	case "resources/list":
		item = fmt.Sprintf(`{"name":%q,"uri":"r://%s"}`, name, name)
	case "resources/templates/list":
		item = fmt.Sprintf(`{"name":%q,"uriTemplate":"r://%s/{x}"}`, name, name)
	}
	return fmt.Sprintf(`{%q:[%s],"resultType":"complete"%s}`, listsOf[method], item, strings.Join(append([]string{""}, more...), ","))
}

// numbering is a server whose lists have one item, with a name that counts how
// often that list was asked for.
func numbering(t *testing.T, isModern bool, more ...string) *scripted {
	up := script(t, isModern, map[string]string{"tools/call": done})
	for method := range listsOf {
		var n atomic.Int64
		up.on(method, func(w http.ResponseWriter, _ *http.Request, in received) {
			writeResult(w, in, listed(method, fmt.Sprintf("item%d", n.Add(1)), more...))
		})
	}
	return up
}

// itemOf is the name of the only item in a list, without the server's prefix.
func itemOf(t testing.TB, method string, result []byte) string {
	t.Helper()
	var r map[string]json.RawMessage
	decode(t, result, &r)
	var items []struct{ Name string }
	decode(t, r[listsOf[method]], &items)
	if len(items) != 1 {
		t.Fatalf("%s: %s", method, result)
	}
	return strings.TrimPrefix(items[0].Name, "a__")
}

// TestListsAreAskedForOnce has many ask at once, and again, in every view.
func TestListsAreAskedForOnce(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		for method := range listsOf {
			up := numbering(t, isModern)
			let, inner := make(chan struct{}), up.answers[method]
			up.on(method, func(w http.ResponseWriter, r *http.Request, in received) { <-let; inner(w, r, in) })
			w := open(t, twoPeople+servers("a", up.URL))
			c := w.modern(t, "/mcp/a", `{}`, asAda...)
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if got := itemOf(t, method, c.get(method, "", `{}`)); got != "item1" {
						t.Errorf("%s: got %s", method, got)
					}
				})
			}
			testkit.Eventually(t, "all of them wait", func() bool { return w.gw.InFlight() == 20 && len(up.of(method)) == 1 })
			close(let)
			wg.Wait()
			for range 5 {
				c.get(method, "", `{}`)
			}
			if n := len(up.of(method)); n != 1 {
				t.Errorf("modern=%v: %s was asked for %d times, want 1", isModern, method, n)
			}
			merged := w.modern(t, "/mcp", `{}`, asAda...)
			for range 5 {
				merged.get(method, "", `{}`)
			}
			if n := len(up.of(method)); n > 2 {
				t.Errorf("modern=%v: %s was asked for %d times for two views, want 2 at most", isModern, method, n)
			}
			hits := w.metric(t, "tine_cache_requests_total", `cache="lists",result="hit",server="a"`)
			if misses := w.metric(t, "tine_cache_requests_total", `cache="lists",result="miss",server="a"`); hits < 5 || misses < 1 {
				t.Errorf("%v hits and %v misses are counted", hits, misses)
			}
		}
	}
}

// TestAskersThatLeaveTakeNobodyWithThem has the first of several askers go away.
func TestAskersThatLeaveTakeNobodyWithThem(t *testing.T) {
	t.Parallel()
	up := numbering(t, true)
	let, inner := make(chan struct{}), up.answers["tools/list"]
	up.on("tools/list", func(w http.ResponseWriter, r *http.Request, in received) {
		select {
		case <-let:
			inner(w, r, in)
		case <-r.Context().Done():
		}
	})
	w := open(t, servers("a", up.URL))
	c := w.dial(t, "/mcp/a", `{}`)
	left := make(chan struct{})
	go func() {
		defer close(left)
		c.post(`{"jsonrpc":"2.0","id":"first","method":"tools/list"}`)
	}()
	testkit.Eventually(t, "the first asks", func() bool { return len(up.of("tools/list")) == 1 })
	second := make(chan message, 1)
	go func() { second <- c.ask("tools/list", `{}`) }()
	testkit.Eventually(t, "the second asks", func() bool { return w.gw.InFlight() == 2 })
	c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"first"}}`)
	<-left
	close(let)
	if got := itemOf(t, "tools/list", take(t, second).Result); got != "item1" && got != "item2" {
		t.Errorf("the second got %s", got)
	}
}

// TestChangedListsAreAskedForAnew has servers of each kind say that a list
// changed, in the ways that there are for that.
func TestChangedListsAreAskedForAnew(t *testing.T) {
	t.Parallel()
	notes := map[string]string{
		"tools/list": "notifications/tools/list_changed", "prompts/list": "notifications/prompts/list_changed",
		"resources/list": "notifications/resources/list_changed", "resources/templates/list": "notifications/resources/list_changed",
	}
	for _, isModern := range []bool{false, true} {
		for method, note := range notes {
			up := numbering(t, isModern)
			taps := make(chan func(string), 4)
			up.tap = func(w http.ResponseWriter, r *http.Request) {
				taps <- events(w)
				<-r.Context().Done()
			}
			up.on("subscriptions/listen", func(w http.ResponseWriter, r *http.Request, in received) {
				send := events(w)
				send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, in.ID))
				taps <- func(msg string) {
					send(strings.Replace(msg, `"}`, fmt.Sprintf(`","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, in.ID), 1))
				}
				<-r.Context().Done()
			})
			w := open(t, servers("a", up.URL))
			one, merged := w.modern(t, "/mcp/a", `{}`), w.dial(t, "/mcp", `{}`)
			one.get(method, "", `{}`)
			send := take(t, taps)
			first := itemOf(t, method, one.get(method, "", `{}`))
			if first != "item1" {
				t.Errorf("modern=%v: %s gave %s before the change", isModern, method, first)
			}
			merged.get(method, `{}`)
			sendMerged := take(t, taps) // of the other session
			was := itemOf(t, method, merged.get(method, `{}`))
			send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, note))
			sendMerged(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, note))
			testkit.Eventually(t, fmt.Sprintf("modern=%v: %s is asked for anew", isModern, method), func() bool {
				return itemOf(t, method, one.get(method, "", `{}`)) != first && itemOf(t, method, merged.get(method, `{}`)) != was
			})
			// Only that one.
			n := len(up.of(method))
			for range 3 {
				one.get(method, "", `{}`)
			}
			if got := len(up.of(method)); got != n {
				t.Errorf("modern=%v: %s is not kept after a change", isModern, method)
			}
		}
	}
}

// keptLists are options of a server whose lists may be kept for long.
func keptLists(scope string) *mcp.ServerOptions {
	return &mcp.ServerOptions{SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) {
		c.TTLMs, c.CacheScope = 3_600_000, scope
	}}
}

// TestChangedListsOnAStream does that with a server on a stream, of both eras.
func TestChangedListsOnAStream(t *testing.T) {
	t.Parallel()
	for _, version := range []string{legacyVersion, modernVersion} {
		for _, scope := range []string{"session", "shared"} {
			s := sdkServer("changing", keptLists("private"))
			add := func(name string) {
				s.AddTool(&mcp.Tool{Name: name, InputSchema: anyObject}, nil)
			}
			add("one")
			w := open(t, servers("a", `{builtin: everything, scope: `+scope+`, protocol: `+version+`}`),
				map[string]builtin.Kind{"everything": factory(func() *mcp.Server { return s })})
			c := w.modern(t, "/mcp/a", `{}`)
			for range 3 {
				if got := string(c.get("tools/list", "", `{}`)); !strings.Contains(got, `"one"`) || strings.Contains(got, `"two"`) {
					t.Errorf("%s, %s: listed %s", version, scope, got)
				}
			}
			if hits := w.metric(t, "tine_cache_requests_total", `cache="lists",result="hit",server="a"`); hits == 0 {
				t.Errorf("%s, %s: the list is not kept", version, scope)
			}
			add("two")
			testkit.Eventually(t, version+", "+scope+": the new tool is listed", func() bool {
				return strings.Contains(string(c.get("tools/list", "", `{}`)), `"two"`)
			})
			s.RemoveTools("one")
			testkit.Eventually(t, version+", "+scope+": the old tool is gone", func() bool {
				return !strings.Contains(string(c.get("tools/list", "", `{}`)), `"one"`)
			})
		}
	}
}

// TestListsAreKeptAsLongAsTheServerSays looks at ttlMs, in what is kept and in
// what clients are told.
func TestListsAreKeptAsLongAsTheServerSays(t *testing.T) {
	t.Parallel()
	ttlOf := func(result []byte) (r struct {
		TTL   *float64 `json:"ttlMs"`
		Scope string   `json:"cacheScope"`
	}) {
		decode(t, result, &r)
		if r.TTL == nil {
			t.Fatalf("no ttlMs in %s", result)
		}
		return r
	}
	t.Run("long", func(t *testing.T) {
		up := numbering(t, true, `"ttlMs":3600000`, `"cacheScope":"private"`)
		w := open(t, servers("a", `{url: "`+up.URL+`", policy: {cache: {lists: 1ms}}}`))
		c := w.modern(t, "/mcp/a", `{}`)
		first := ttlOf(c.get("tools/list", "", `{}`))
		// The server's word is the longer one; it gets less with time.
		testkit.Eventually(t, "the time that is left is less", func() bool {
			again := ttlOf(c.get("tools/list", "", `{}`))
			if *again.TTL > *first.TTL || *again.TTL <= 0 || again.Scope != "private" {
				t.Fatalf("first %v, then %+v", *first.TTL, again)
			}
			return *again.TTL < *first.TTL
		})
		if n := len(up.of("tools/list")); n != 1 {
			t.Errorf("asked for %d times, want 1", n)
		}
	})
	t.Run("short", func(t *testing.T) {
		up := numbering(t, true, `"ttlMs":30`, `"cacheScope":"private"`)
		w := open(t, servers("a", up.URL))
		c := w.modern(t, "/mcp/a", `{}`)
		first := itemOf(t, "tools/list", c.get("tools/list", "", `{}`))
		testkit.Eventually(t, "it is asked for anew", func() bool { return itemOf(t, "tools/list", c.get("tools/list", "", `{}`)) != first })
	})
	for _, never := range []string{`"ttlMs":0`, `"ttlMs":-5`, `"ttlMs":"60000"`, `"ttlMs":null`} {
		t.Run(never, func(t *testing.T) {
			up := numbering(t, true, never, `"cacheScope":"public"`)
			w := open(t, servers("a", up.URL))
			c := w.modern(t, "/mcp/a", `{}`)
			for range 3 {
				c.get("tools/list", "", `{}`)
			}
			if n := len(up.of("tools/list")); n != 3 {
				t.Errorf("asked for %d times, want 3", n)
			}
		})
	}
	t.Run("off", func(t *testing.T) {
		for _, off := range []string{"off", "{lists: 0}"} {
			up := numbering(t, true, `"ttlMs":60000`, `"cacheScope":"public"`)
			w := open(t, servers("a", `{url: "`+up.URL+`", policy: {cache: `+off+`}}`))
			c := w.modern(t, "/mcp/a", `{}`)
			for method := range listsOf {
				for range 3 {
					c.get(method, "", `{}`)
				}
				if n := len(up.of(method)); n != 3 {
					t.Errorf("cache: %s: %s was asked for %d times, want 3", off, method, n)
				}
			}
		}
	})
	t.Run("failures", func(t *testing.T) {
		up := numbering(t, true)
		good := up.answers["tools/list"]
		w := open(t, servers("a", `{url: "`+up.URL+`", policy: {retry: off}}`))
		c := w.modern(t, "/mcp/a", `{}`)
		up.on("tools/list", func(w http.ResponseWriter, _ *http.Request, in received) {
			writeFailure(w, http.StatusOK, in, -32000, "not now")
		})
		c.ask("tools/list", "", `{}`).failure(t)
		up.on("tools/list", func(w http.ResponseWriter, _ *http.Request, _ received) {
			w.WriteHeader(http.StatusInternalServerError)
		})
		c.ask("tools/list", "", `{}`).failure(t)
		up.on("tools/list", good)
		if got := itemOf(t, "tools/list", c.get("tools/list", "", `{}`)); got != "item1" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("pages", func(t *testing.T) {
		up := script(t, true, nil)
		up.on("tools/list", func(w http.ResponseWriter, _ *http.Request, in received) {
			var p struct{ Cursor string }
			decode(t, in.Params, &p)
			writeResult(w, in, listed("tools/list", "page"+p.Cursor, `"nextCursor":"`+p.Cursor+`x"`))
		})
		w := open(t, servers("a", up.URL))
		c := w.modern(t, "/mcp/a", `{}`)
		for range 3 {
			for _, cursor := range []string{"x", "xx", "xxx"} {
				if got := itemOf(t, "tools/list", c.get("tools/list", "", `{"cursor":"`+cursor+`"}`)); got != "page"+cursor {
					t.Errorf("the page at %s is %s", cursor, got)
				}
			}
		}
		if n := len(up.of("tools/list")); n != 3 {
			t.Errorf("asked for %d times, want 3", n)
		}
	})
}

// TestReloadsEmptyLists changes a server's entry under its lists, shared ones too.
func TestReloadsEmptyLists(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"private", "public"} {
		keep := []string{`"ttlMs":3600000`, fmt.Sprintf(`"cacheScope":%q`, scope)}
		first, second := script(t, true, nil), script(t, true, nil)
		for method := range listsOf {
			first.on(method, result1(listed(method, "first", keep...)))
			second.on(method, result1(listed(method, "second", keep...)))
		}
		entry := func(url string) string { return servers("a", `{url: "`+url+`"}`) }
		w := open(t, entry(first.URL))
		one, merged := w.modern(t, "/mcp/a", `{}`), w.dial(t, "/mcp", `{}`)
		check := func(when, want string) {
			t.Helper()
			for method := range listsOf {
				if got := itemOf(t, method, one.get(method, "", `{}`)); got != want {
					t.Errorf("%s, %s: %s of the one view has %s, want %s", scope, when, method, got, want)
				}
				if got := itemOf(t, method, merged.get(method, `{}`)); got != want {
					t.Errorf("%s, %s: %s of the merged view has %s, want %s", scope, when, method, got, want)
				}
			}
		}
		check("at first", "first")
		w.reload(t, entry(second.URL))
		check("after a reload with another address", "second")
		w.reload(t, entry(first.URL))
		check("after a reload with the first address", "first")

		// Switched off and on again, or with another key, the server may have other
		// lists.
		for method := range listsOf {
			first.on(method, result1(listed(method, "third", keep...)))
		}
		for _, on := range []string{"false", "true"} {
			if r := w.do(t, "PATCH", "/v1/servers/a", `{"enabled":`+on+`}`, "Content-Type", "application/json"); r.status != http.StatusOK {
				t.Fatalf("status %d %s", r.status, r.body)
			}
		}
		check("after off and on", "third")
		for method := range listsOf {
			first.on(method, result1(listed(method, "fourth", keep...)))
		}
		if r := w.do(t, "PATCH", "/v1/servers/a", `{"set":{"headers":{"X-Key":"of-another-tenant"}}}`, "Content-Type", "application/json"); r.status != http.StatusOK {
			t.Fatalf("status %d %s", r.status, r.body)
		}
		check("with another key", "fourth")
	}
}

// TestReloadsForgetHints has a read-only tool become another tool of the same
// name, at another address.
func TestReloadsForgetHints(t *testing.T) {
	t.Parallel()
	first, second := newFailing(t, true), newFailing(t, true)
	second.on("tools/list", result1(`{"tools":[{"name":"reads","inputSchema":{}}],"resultType":"complete","ttlMs":60000,"cacheScope":"private"}`))
	entry := func(url string) string { return servers("a", `{url: "`+url+`", `+quickly+`}`) }
	w := open(t, entry(first.URL))
	c := w.modern(t, "/mcp/a", `{}`)
	c.get("tools/list", "", `{}`)
	w.reload(t, entry(second.URL))
	second.next(-1, failures[0].fail)
	c.ask("tools/call", "reads", `{"name":"reads"}`)
	if n := second.callsOf("reads"); n != 1 {
		t.Errorf("a tool that its server does not call read-only reached it %d times, by the word of the server before", n)
	}
}

// TestRestartsEmptyLists has a server come back as another version of itself.
func TestRestartsEmptyLists(t *testing.T) {
	t.Parallel()
	up := script(t, false, map[string]string{"tools/call": done})
	var mu sync.Mutex
	session, version := "", 1
	for method := range listsOf {
		up.on(method, func(w http.ResponseWriter, _ *http.Request, in received) {
			mu.Lock()
			defer mu.Unlock()
			if in.header.Get("Mcp-Session-Id") != session {
				http.Error(w, "no such session", http.StatusNotFound)
				return
			}
			writeResult(w, in, listed(method, fmt.Sprint("version", version)))
		})
	}
	up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		mu.Lock()
		defer mu.Unlock()
		if in.header.Get("Mcp-Session-Id") != session {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
		writeResult(w, in, done)
	})
	up.on("initialize", func(w http.ResponseWriter, _ *http.Request, in received) {
		mu.Lock()
		defer mu.Unlock()
		session = fmt.Sprint("of-version-", version)
		w.Header().Set("Mcp-Session-Id", session)
		writeResult(w, in, `{"protocolVersion":"2025-11-25","capabilities":`+everyCapability+`,"serverInfo":{"name":"scripted","version":"1"}}`)
	})
	w := open(t, servers("a", up.URL))
	c := w.modern(t, "/mcp/a", `{}`)
	for method := range listsOf {
		c.get(method, "", `{}`)
	}
	mu.Lock()
	session, version = "", 2
	mu.Unlock()
	// A call finds out.
	if got := resultText(t, c.ask("tools/call", "x", `{"name":"x"}`)); got != "done" {
		t.Errorf("got %q", got)
	}
	for method := range listsOf {
		if got := itemOf(t, method, c.get(method, "", `{}`)); got != "version2" {
			t.Errorf("%s still has %s", method, got)
		}
	}
}

// TestListsAfterAGapInHearing cuts the stream that changes are heard on, and
// changes the lists before it is open again. No notification could say so.
func TestListsAfterAGapInHearing(t *testing.T) {
	for _, isModern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern server=%v", isModern), func(t *testing.T) {
			t.Parallel()
			up := numbering(t, isModern)
			opened, cut := make(chan struct{}, 1), make(chan struct{}, 1)
			hear := func(r *http.Request) {
				select {
				case opened <- struct{}{}:
				case <-r.Context().Done():
				}
				select {
				case <-cut: // the first
				case <-r.Context().Done():
				}
			}
			up.tap = func(w http.ResponseWriter, r *http.Request) { events(w); hear(r) }
			up.on("subscriptions/listen", func(w http.ResponseWriter, r *http.Request, in received) {
				events(w)(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, in.ID))
				hear(r)
			})
			w := open(t, servers("a", up.URL))
			c := w.modern(t, "/mcp/a", `{}`)
			for method := range listsOf {
				c.get(method, "", `{}`)
			}
			take(t, opened)
			cut <- struct{}{}
			take(t, opened)
			for method := range listsOf {
				testkit.Eventually(t, method+" is asked for anew", func() bool { return itemOf(t, method, c.get(method, "", `{}`)) != "item1" })
			}
		})
	}
}
