package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, "limits: {body: 4KiB}\n"+servers("a", up.URL))
	call := func(n int) string {
		head, tail := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__one","arguments":{"x":"`, `"}}}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	for path, large := range map[string]string{"/mcp": call(4097), "/v1/call": `{"tool":"a__one","arguments":{"x":"` + strings.Repeat("x", 4096) + `"}}`} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(large)
			if chunked {
				body = io.MultiReader(body) // of unknown length
			}
			req, err := http.NewRequestWithContext(t.Context(), "POST", w.at(path), body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := w.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s chunked=%v: status %d, want 413", path, chunked, resp.StatusCode)
			}
		}
	}
	if n := len(up.of("tools/call")); n != 0 {
		t.Errorf("%d calls reached the server", n)
	}
	if m := w.do(t, "POST", "/mcp", call(4096), "Content-Type", "application/json").answer(); m.Result == nil {
		t.Errorf("a body of just the limit: %s", m.raw)
	}
}

// blocking is a server whose calls wait until the test lets them go.
func blocking(t *testing.T, isModern bool) (up *scripted, started chan string, release chan struct{}) {
	up = script(t, isModern, map[string]string{"tools/list": toolList("hold", "free")})
	started, release = make(chan string, 64), make(chan struct{})
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		started <- string(in.Params)
		select {
		case <-release:
			writeResult(w, in, done)
		case <-r.Context().Done():
		}
	})
	return up, started, release
}

func TestTooManyCalls(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	w := open(t, "limits: {calls: 3}\n"+servers("a", up.URL))
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__hold"}}`
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if m := w.do(t, "POST", "/mcp", body, "Content-Type", "application/json").answer(); m.Result == nil {
				t.Errorf("within the limit: %s", m.raw)
			}
		})
	}
	for range 3 {
		take(t, started)
	}
	if n := w.gw.InFlight(); n != 3 {
		t.Errorf("%d in flight, want 3", n)
	}
	for range 5 {
		if r := w.do(t, "POST", "/mcp", body, "Content-Type", "application/json"); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
			t.Errorf("over the limit: status %d, Retry-After %q", r.status, r.header.Get("Retry-After"))
		}
	}
	if r := w.do(t, "POST", "/v1/call", `{"tool":"a__hold"}`, "Content-Type", "application/json"); r.status != http.StatusServiceUnavailable {
		t.Errorf("over the limit by the control API: status %d %s", r.status, r.body)
	}
	close(release)
	wg.Wait()
	if n := len(up.of("tools/call")); n != 3 {
		t.Errorf("%d calls reached the server, want 3", n)
	}
	testkit.Eventually(t, "nothing is in flight", func() bool { return w.gw.InFlight() == 0 })
	if m := w.do(t, "POST", "/mcp", body, "Content-Type", "application/json").answer(); m.Result == nil {
		t.Errorf("afterwards: %s", m.raw)
	}
}

func TestDrainWaitsForCalls(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	w := open(t, servers("a", up.URL))
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__hold"}}`
	c := w.dial(t, "/mcp", `{}`)
	stream := c.listen()
	var wg sync.WaitGroup
	wg.Go(func() {
		if m := w.do(t, "POST", "/mcp", body, "Content-Type", "application/json").answer(); m.Result == nil {
			t.Errorf("a call that ran when draining began: %s", m.raw)
		}
	})
	take(t, started)
	drained := make(chan struct{})
	go func() { defer close(drained); w.gw.Drain(t.Context()) }()
	testkit.Eventually(t, "new calls are refused", func() bool {
		return w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Content-Type", "application/json").status == http.StatusServiceUnavailable
	})
	if r := w.do(t, "GET", "/readyz", ""); r.status != http.StatusServiceUnavailable || !strings.Contains(string(r.body), "draining") {
		t.Errorf("readyz: %d %s", r.status, r.body)
	}
	if r := w.do(t, "POST", "/v1/call", `{"tool":"a__free"}`, "Content-Type", "application/json"); r.status != http.StatusServiceUnavailable {
		t.Errorf("a new call by the control API: status %d %s", r.status, r.body)
	}
	if r := w.do(t, "GET", "/healthz", ""); r.status != http.StatusOK {
		t.Errorf("healthz: %d", r.status)
	}
	for { // the open stream is ended, so that it does not hold the end up
		if _, err := stream.tryNext(); err != nil {
			break
		}
	}
	select {
	case <-drained:
		t.Error("drained with a running call")
	default:
	}
	close(release)
	take(t, drained)
	wg.Wait()
}

// TestDrainLetsClientsDigest checks that a client whose call was waited for may list
// before the gateway stops, as SDKs do with an answer in hand, and that no other client
// may.
func TestDrainLetsClientsDigest(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	w := open(t, servers("a", up.URL))
	c, other := w.dial(t, "/mcp", `{}`), w.dial(t, "/mcp", `{}`)
	var wg sync.WaitGroup
	wg.Go(func() { c.get("tools/call", `{"name":"a__hold"}`) })
	take(t, started)
	drained := make(chan struct{})
	go func() { defer close(drained); w.gw.Drain(t.Context()) }()
	testkit.Eventually(t, "new calls are refused", func() bool { return w.do(t, "GET", "/readyz", "").status == http.StatusServiceUnavailable })
	check := func(when string) {
		for _, method := range []string{"tools/list", "ping"} {
			if r := c.request(method, `{}`); r.status != http.StatusOK {
				t.Errorf("%s %s: status %d", method, when, r.status)
			}
			if r := other.request(method, `{}`); r.status != http.StatusServiceUnavailable {
				t.Errorf("%s of another client %s: status %d", method, when, r.status)
			}
		}
		if r := c.request("tools/call", `{"name":"a__free"}`); r.status != http.StatusServiceUnavailable {
			t.Errorf("a new call %s: status %d", when, r.status)
		}
	}
	check("while its call runs")
	close(release)
	wg.Wait()
	check("after its call")
	take(t, drained)
}

// TestAnswersGetThrough checks that what a call needs to end is taken even where
// no new call would be: its client's answer to a question, or a cancellation.
func TestAnswersGetThrough(t *testing.T) {
	t.Parallel()
	s := newTalkative(t, false)
	w := open(t, "limits: {calls: 1}\n"+servers("t", serveSDK(t, s.Server, false)))
	c := w.dial(t, "/mcp/t", bothCaps)
	ask := func() (*reply, string) {
		call := c.request("tools/call", `{"name":"elicit","arguments":{}}`)
		asked := call.stream.until("elicitation/create")
		return call, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"who":"x"}}}`, asked.ID)
	}
	call, answer := ask()
	if r := c.request("ping", `{}`); r.status != http.StatusServiceUnavailable {
		t.Fatalf("over the limit: status %d", r.status)
	}
	if r := c.post(answer); r.status != http.StatusAccepted {
		t.Errorf("an answer at the limit: status %d %s", r.status, r.body)
	}
	if got := resultText(t, call.answer()); got != "accept x" {
		t.Errorf("got %q", got)
	}
	testkit.Eventually(t, "nothing is in flight", func() bool { return w.gw.InFlight() == 0 })
	call, answer = ask()
	drained := make(chan struct{})
	go func() { defer close(drained); w.gw.Drain(t.Context()) }()
	testkit.Eventually(t, "new calls are refused", func() bool { return w.do(t, "GET", "/readyz", "").status == http.StatusServiceUnavailable })
	if r := c.post(answer); r.status != http.StatusAccepted {
		t.Errorf("an answer while draining: status %d %s", r.status, r.body)
	}
	if got := resultText(t, call.answer()); got != "accept x" {
		t.Errorf("got %q", got)
	}
	take(t, drained)
}

// TestLimitAtEveryDoor checks that no door is a way around limits.calls.
func TestLimitAtEveryDoor(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	w := open(t, "limits: {calls: 2}\n"+servers("a", up.URL))
	stream, post := openEvents(t, w, "/sse/a")
	hold := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"hold"}}`, id)
	}
	w.do(t, "POST", post, hold(1), "Content-Type", "application/json")
	w.do(t, "POST", post, hold(2), "Content-Type", "application/json")
	take(t, started)
	take(t, started)
	w.do(t, "POST", post, hold(3), "Content-Type", "application/json")
	if m := stream.next(); string(m.ID) != "3" || !strings.Contains(string(m.raw), `"refused"`) {
		t.Errorf("the third by event stream: %s", m.raw)
	}
	if r := w.do(t, "POST", "/mcp/a", "["+hold(4)+"]", "Content-Type", "application/json"); r.status != http.StatusServiceUnavailable {
		t.Errorf("one more in a batch: status %d %s", r.status, r.body)
	}
	in, out, _ := serveStdio(t, w, "a", false)
	next := lines(t, out)
	if _, err := io.WriteString(in, hold(5)+"\n"); err != nil {
		t.Fatal(err)
	}
	if m := next(); !strings.Contains(string(m.raw), `"refused"`) {
		t.Errorf("one more by stdio: %s", m.raw)
	}
	close(release)
	for range 2 {
		stream.next()
	}
	testkit.Eventually(t, "nothing is in flight", func() bool { return w.gw.InFlight() == 0 })
	// A batch counts as many as it holds.
	if r := w.do(t, "POST", "/mcp/a", "["+hold(6)+","+hold(7)+","+hold(8)+"]", "Content-Type", "application/json"); r.status != http.StatusServiceUnavailable {
		t.Errorf("three in a batch: status %d %s", r.status, r.body)
	}
	if r := w.do(t, "POST", "/mcp/a", "["+hold(6)+","+hold(7)+"]", "Content-Type", "application/json"); r.status != http.StatusOK {
		t.Errorf("two in a batch: status %d %s", r.status, r.body)
	}
	if n := w.gw.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestDeepAndOddJSON(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL))
	c := w.dial(t, "/mcp/a", `{}`)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	body := func(args string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one","arguments":{"x":` + args + `}}}`
	}
	// However deep it is, it is answered, and the gateway lives on.
	for _, n := range []int{100, 10_000, 1_000_000} {
		if r := c.post(body(deep(n))); r.status != 200 && r.status != 400 {
			t.Errorf("%d levels: status %d", n, r.status)
		}
	}
	for _, bad := range []string{`{"a":1,}`, `[1,]`, `01`, `1.`, `.5`, `+1`, `"\x"`, `"\ud83d"x`, "\"a\nb\"", "\"a\x00b\"", `nul`, `NaN`, `'a'`, `{a:1}`, `"\u12g4"`, "\"\xff\"x", `//`, ``} {
		before := len(up.of("tools/call"))
		r := c.post(body(bad))
		if r.status != http.StatusBadRequest {
			t.Errorf("%q: status %d %s", bad, r.status, r.body)
		}
		if len(up.of("tools/call")) != before {
			t.Errorf("%q reached the server", bad)
		}
	}
	c.get("tools/list", `{}`)
}

// TestBatches checks arrays of messages, which only revision 2025-03-26 has.
func TestBatches(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL))
	old := w.do(t, "POST", "/mcp/a", `{"jsonrpc":"2.0","id":"hi","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`,
		"Content-Type", "application/json", "Accept", bothTypes)
	id := old.header.Get("Mcp-Session-Id")
	if m := old.answer(); !strings.Contains(string(m.Result), `"2025-03-26"`) {
		t.Fatalf("initialize: %s", m.raw)
	}
	post := func(body string, headers ...string) *reply {
		return w.do(t, "POST", "/mcp/a", body, append([]string{"Content-Type", "application/json", "Accept", bothTypes, "Mcp-Session-Id", id}, headers...)...)
	}
	r := post(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"one","arguments":{"n":12345678901234567890}}},{"jsonrpc":"2.0","id":3,"method":"x/y"}]`)
	got := map[string]message{}
	if r.stream != nil {
		for range 3 {
			m := r.stream.next()
			got[string(m.ID)] = m
		}
	} else {
		var all []rawText
		decode(t, r.body, &all)
		for _, one := range all {
			m, err := parseMessage([]byte(one))
			if err != nil {
				t.Fatal(err)
			}
			got[string(m.ID)] = m
		}
	}
	if len(got) != 3 || got["1"].Result == nil || got[`"two"`].Result == nil || got["3"].Error == nil {
		t.Errorf("answered %v", got)
	}
	if in := up.last(t, "tools/call"); argumentsOf(t, in) != `{"n":12345678901234567890}` {
		t.Errorf("the server got %s", in.Params)
	}
	if r := post(`[{"jsonrpc":"2.0","method":"notifications/initialized"}]`); r.status != http.StatusAccepted {
		t.Errorf("only notifications: status %d", r.status)
	}
	for name, tt := range map[string][]string{
		"empty":             {`[]`},
		"not messages":      {`[1,2]`},
		"a handshake":       {`[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}]`},
		"nested":            {`[[{"jsonrpc":"2.0","id":1,"method":"ping"}]]`},
		"of a later client": {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "Mcp-Protocol-Version", "2025-11-25"},
		"too many":          {"[" + strings.TrimSuffix(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 100_000), ",") + "]"},
	} {
		if r := post(tt[0], tt[1:]...); r.status != http.StatusBadRequest {
			t.Errorf("%s: status %d %.200s", name, r.status, r.body)
		}
	}
	// A batch must not be a way around the checks of the modern era.
	evil := fmt.Sprintf(`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one",%s}}]`, meta(`{}`))
	before := len(up.of("tools/call"))
	if r := w.do(t, "POST", "/mcp/a", evil, modernHeaders("tools/call", "other")...); r.status != http.StatusBadRequest || len(up.of("tools/call")) != before {
		t.Errorf("a modern batch: status %d", r.status)
	}
}
