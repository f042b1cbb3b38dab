package gateway_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// answering is a server whose calls are answered with a text that counts them.
func answering(t *testing.T, isModern bool) *scripted {
	up := script(t, isModern, map[string]string{"tools/list": hintedTools})
	var n atomic.Int64
	up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		writeResult(w, in, fmt.Sprintf(`{"content":[{"type":"text","text":"answer%d"}],"resultType":"complete"}`, n.Add(1)))
	})
	return up
}

func TestResultsAreNotKeptUnlessAskedFor(t *testing.T) {
	t.Parallel()
	up := answering(t, true)
	w := open(t, servers("a", up.URL))
	c := w.modern(t, "/mcp/a", `{}`)
	for range 3 {
		c.get("tools/call", "reads", `{"name":"reads"}`)
	}
	if n := up.callsOf("reads"); n != 3 {
		t.Errorf("%d calls came, want 3", n)
	}
}

func TestResultsAreKept(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		up := answering(t, isModern)
		w := open(t, twoPeople+servers("a", `{url: "`+up.URL+`", policy: {cache: {results: 1h}}}`))
		one, merged := w.modern(t, "/mcp/a", `{}`, asAda...), w.modern(t, "/mcp", `{}`, asAda...)
		call := func(c *modern, tool, arguments string) string {
			t.Helper()
			return resultText(t, c.ask("tools/call", tool, fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments)))
		}
		first := call(one, "reads", `{"x":1}`)
		for range 3 {
			if got := call(one, "reads", `{"x":1}`); got != first {
				t.Errorf("modern=%v: the same call got %s, then %s", isModern, first, got)
			}
		}
		if got := call(merged, "a__reads", `{"x":1}`); got != first {
			t.Errorf("modern=%v: the same call in the merged view got %s, want %s", isModern, got, first)
		}
		if n := up.callsOf("reads"); n != 1 {
			t.Errorf("modern=%v: %d calls came, want 1", isModern, n)
		}
		seen := map[string]bool{first: true}
		for _, arguments := range []string{`{"x":2}`, `{}`, `{"x":1,"y":null}`, `{"x":"1"}`} {
			if got := call(one, "reads", arguments); seen[got] {
				t.Errorf("modern=%v: other arguments, %s, got %s again", isModern, arguments, got)
			} else {
				seen[got] = true
			}
		}
		bob := w.modern(t, "/mcp/a", `{}`, asBob...)
		if got := call(bob, "reads", `{"x":1}`); seen[got] {
			t.Errorf("modern=%v: bob got ada's %s", isModern, got)
		}
		if got := call(one, "reads", `{"x":1}`); got != first {
			t.Errorf("modern=%v: after other calls: %s, want %s", isModern, got, first)
		}
		// An idempotent tool changes something, so it is no read.
		for _, tool := range append([]string{"sets"}, mutations...) {
			before := call(one, "reads", `{"x":1}`)
			n := up.callsOf(tool)
			a, b := call(one, tool, `{}`), call(one, tool, `{}`)
			if a == b || up.callsOf(tool) != n+2 {
				t.Errorf("modern=%v: %s was answered from memory: %s, %s", isModern, tool, a, b)
			}
			if got := call(one, "reads", `{"x":1}`); got == before {
				t.Errorf("modern=%v: after %s, which may have changed something, a read still got %s", isModern, tool, got)
			}
		}
		// Whichever client made the change.
		before := call(one, "reads", `{"x":1}`)
		call(bob, "plain", `{}`)
		if got := call(one, "reads", `{"x":1}`); got == before {
			t.Errorf("modern=%v: after bob's change ada still got %s", isModern, got)
		}
		if hits := w.metric(t, "tine_cache_requests_total", `cache="results",result="hit",server="a"`); hits < 4 {
			t.Errorf("modern=%v: %v hits are counted", isModern, hits)
		}
	}
}

// TestReadsDuringAChangeAreNotKept starts a read before a change and ends it
// after: what it saw may be from before.
func TestReadsDuringAChangeAreNotKept(t *testing.T) {
	t.Parallel()
	up := answering(t, true)
	inner := up.answers["tools/call"]
	came, let := make(chan struct{}), make(chan struct{})
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		if argument(in) == "slow" && up.callsOf("reads") == 1 {
			came <- struct{}{}
			<-let
		}
		inner(w, r, in)
	})
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {cache: {results: 1h}}}`))
	c := w.modern(t, "/mcp/a", `{}`)
	const slow = `{"name":"reads","arguments":{"n":"slow"}}`
	read := make(chan string, 1)
	go func() { read <- resultText(t, c.ask("tools/call", "reads", slow)) }()
	take(t, came)
	c.get("tools/call", "plain", `{"name":"plain"}`)
	close(let)
	old := take(t, read)
	if got := resultText(t, c.ask("tools/call", "reads", slow)); got == old {
		t.Errorf("a read from before the change, %s, is kept", got)
	}
}

func TestFailedResultsAreNotKept(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]answer{
		"isError": result1(`{"content":[{"type":"text","text":"failed"}],"isError":true,"resultType":"complete"}`),
		"a JSON-RPC error": func(w http.ResponseWriter, _ *http.Request, in received) {
			writeFailure(w, http.StatusOK, in, -32000, "failed")
		},
		"HTTP 500": failures[5].fail,
	} {
		up := newFailing(t, true)
		w := open(t, servers("a", `{url: "`+up.URL+`", policy: {retry: off, breaker: off, cache: {results: 1h}}}`))
		c := w.modern(t, "/mcp/a", `{}`)
		up.next(2, fail)
		for range 2 {
			c.ask("tools/call", "reads", `{"name":"reads"}`)
		}
		if n := up.callsOf("reads"); n != 2 {
			t.Errorf("%s: %d calls came, want 2", name, n)
		}
		if got := resultText(t, c.ask("tools/call", "reads", `{"name":"reads"}`)); got != "done" {
			t.Errorf("%s: afterwards %q", name, got)
		}
	}
}

// TestOnlyWantedToolsResultsAreKept names the tools by pattern.
func TestOnlyWantedToolsResultsAreKept(t *testing.T) {
	t.Parallel()
	up := script(t, true, map[string]string{"tools/call": done, "tools/list": `{"tools":[` +
		`{"name":"get_a","inputSchema":{},"annotations":{"readOnlyHint":true}},` +
		`{"name":"find","inputSchema":{},"annotations":{"readOnlyHint":true}}],"resultType":"complete","ttlMs":60000,"cacheScope":"private"}`})
	// Seen under another name, patterns are of the server's own.
	w := open(t, servers("a", `{url: "`+up.URL+`", tools: {rename: {get_a: a}}, policy: {cache: {results: 1h, tools: ["get_*"]}}}`))
	c := w.modern(t, "/mcp/a", `{}`)
	for range 3 {
		c.get("tools/call", "a", `{"name":"a"}`)
		c.get("tools/call", "find", `{"name":"find"}`)
	}
	if kept, not := up.callsOf("get_a"), up.callsOf("find"); kept != 1 || not != 3 {
		t.Errorf("get_a came %d times and find %d, want 1 and 3", kept, not)
	}
}

// TestKeptResultsAreWhole has links in a result, which the merged view gives
// other addresses: what is kept is not what was changed for one client.
func TestKeptResultsAreWhole(t *testing.T) {
	t.Parallel()
	up := script(t, true, map[string]string{"tools/list": hintedTools,
		"tools/call": `{"content":[{"type":"resource_link","uri":"r://x","name":"x"},{"type":"text","text":"big 12345678901234567890"}],"resultType":"complete"}`})
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {cache: {results: 1h}}}`))
	one, merged := w.modern(t, "/mcp/a", `{}`), w.modern(t, "/mcp", `{}`)
	wantOne := string(one.get("tools/call", "reads", `{"name":"reads"}`))
	wantMerged := string(merged.get("tools/call", "a__reads", `{"name":"a__reads"}`))
	for range 3 {
		if got := string(one.get("tools/call", "reads", `{"name":"reads"}`)); got != wantOne {
			t.Errorf("got %s, want %s", got, wantOne)
		}
		if got := string(merged.get("tools/call", "a__reads", `{"name":"a__reads"}`)); got != wantMerged {
			t.Errorf("got %s, want %s", got, wantMerged)
		}
	}
	if n := up.callsOf("reads"); n != 1 {
		t.Errorf("%d calls came, want 1", n)
	}
}
