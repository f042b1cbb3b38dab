package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// argument reads the one argument that these tests tell calls apart by.
func argument(in received) string {
	var p struct {
		Arguments struct{ N string }
	}
	_ = json.Unmarshal(in.Params, &p)
	return p.Arguments.N
}

// oneByOne is a server whose calls say that they came and wait to be let go.
func oneByOne(t *testing.T) (up *scripted, came chan string, let chan struct{}) {
	up = script(t, true, map[string]string{"tools/list": hintedTools})
	came, let = make(chan string, 1024), make(chan struct{}, 1024)
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		came <- argument(in)
		select {
		case <-let:
			writeResult(w, in, done)
		case <-r.Context().Done():
		}
	})
	return up, came, let
}

// callAs makes a call that goes on by itself, as the principal of the headers.
func (w *world) callAs(t *testing.T, n string, headers ...string) <-chan *reply {
	answered := make(chan *reply, 1)
	go func() {
		answered <- w.modern(t, "/mcp/a", `{}`, headers...).request("tools/call", "plain", fmt.Sprintf(`{"name":"plain","arguments":{"n":%q}}`, n))
	}()
	return answered
}

// queued waits until so many calls wait for a turn.
func (w *world) queued(t *testing.T, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d calls wait", n), func() bool { return w.server(t, "a").Queue == n })
}

// wantRefused checks a refusal by a limit, on MCP.
func wantRefused(t *testing.T, r *reply) *api.Error {
	t.Helper()
	e := wantKind(t, r.answer(), api.KindRefused)
	if r.status != http.StatusOK || e.RetryAfter < 1 || !e.Retryable || e.Server != "a" {
		t.Errorf("refused with status %d, %+v", r.status, e)
	}
	if got := r.header.Get("Retry-After"); got != strconv.Itoa(e.RetryAfter) {
		t.Errorf("Retry-After %q beside %+v", got, e)
	}
	return e
}

// TestConcurrencyIsFair has one principal with a long queue and one who comes
// late with a single call.
func TestConcurrencyIsFair(t *testing.T) {
	t.Parallel()
	up, came, let := oneByOne(t)
	w := open(t, twoPeople+servers("a", `{url: "`+up.URL+`", policy: {concurrency: {calls: 1, queue: 16, wait: 1m}}}`))
	var answers []<-chan *reply
	answers = append(answers, w.callAs(t, "ada0", asAda...))
	if got := take(t, came); got != "ada0" {
		t.Fatalf("first came %q", got)
	}
	for i := 1; i <= 6; i++ {
		answers = append(answers, w.callAs(t, "ada"+strconv.Itoa(i), asAda...))
		w.queued(t, i)
	}
	answers = append(answers, w.callAs(t, "bob", asBob...))
	w.queued(t, 7)
	if s := w.server(t, "a"); s.InFlight != 1 {
		t.Errorf("%d running, want 1", s.InFlight)
	}
	if got := w.metric(t, "tine_queue_length", `server="a"`); got != 7 {
		t.Errorf("tine_queue_length is %v, want 7", got)
	}
	var order []string
	for range 7 {
		let <- struct{}{}
		order = append(order, take(t, came))
	}
	let <- struct{}{}
	if at := slices.Index(order, "bob"); at < 0 || at > 1 {
		t.Errorf("the calls came as %q: bob had to wait for more than one of ada's", order)
	}
	for _, ch := range answers {
		if got := resultText(t, take(t, ch).answer()); got != "done" {
			t.Errorf("got %q", got)
		}
	}
	if n := up.callsOf("plain"); n != 8 {
		t.Errorf("%d calls came, want 8", n)
	}
}

// TestFullQueueRefuses fills the queue: the principal that filled it is refused,
// and another principal still gets a place.
func TestFullQueueRefuses(t *testing.T) {
	t.Parallel()
	up, came, let := oneByOne(t)
	w := open(t, twoPeople+servers("a", `{url: "`+up.URL+`", policy: {concurrency: {calls: 1, queue: 2, wait: 1m}}}`,
		"b", echoServer(t, true, "one").URL))
	first := w.callAs(t, "ada0", asAda...)
	take(t, came)
	second := w.callAs(t, "ada1", asAda...)
	w.queued(t, 1)
	third := w.callAs(t, "ada2", asAda...)
	w.queued(t, 2)
	e := wantRefused(t, take(t, w.callAs(t, "ada3", asAda...)))
	if !strings.Contains(e.Message, "servers.a.policy.concurrency") {
		t.Errorf("the refusal does not name the key: %q", e.Message)
	}
	r := w.do(t, "POST", "/v1/call", `{"tool":"a__plain"}`, append([]string{"Content-Type", "application/json"}, asAda...)...)
	if r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
		t.Errorf("by the control API: status %d, Retry-After %q, %s", r.status, r.header.Get("Retry-After"), r.body)
	}
	if got := resultText(t, w.modern(t, "/mcp/b", `{}`, asAda...).ask("tools/call", "one", `{"name":"one"}`)); got != "done" {
		t.Errorf("another server: %q", got)
	}
	// Bob has fewer waiting than ada, so ada's newest makes room.
	bob := w.callAs(t, "bob", asBob...)
	wantRefused(t, take(t, third))
	w.queued(t, 2)
	for range 3 {
		let <- struct{}{}
	}
	for who, ch := range map[string]<-chan *reply{"ada0": first, "ada1": second, "bob": bob} {
		if got := resultText(t, take(t, ch).answer()); got != "done" {
			t.Errorf("%s got %q", who, got)
		}
	}
	if n := up.callsOf("plain"); n != 3 {
		t.Errorf("%d calls came, want 3", n)
	}
	if n := w.metric(t, "tine_refused_total", `reason="concurrency",server="a"`); n != 3 {
		t.Errorf("%v refusals counted, want 3", n)
	}
}

// TestWaitIsBounded lets the wait for a turn run out.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	up, came, let := oneByOne(t)
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {concurrency: {calls: 1, wait: 50ms}}}`))
	first := w.callAs(t, "first")
	take(t, came)
	wantRefused(t, take(t, w.callAs(t, "second")))
	let <- struct{}{}
	if got := resultText(t, take(t, first).answer()); got != "done" {
		t.Errorf("got %q", got)
	}
	let <- struct{}{}
	if got := resultText(t, take(t, w.callAs(t, "third")).answer()); got != "done" {
		t.Errorf("afterwards: %q", got)
	}
	if n := up.callsOf("plain"); n != 2 {
		t.Errorf("%d calls came, want 2", n)
	}
}

// TestRateRefuses has a rate so slow that its burst is all there is.
func TestRateRefuses(t *testing.T) {
	t.Parallel()
	up := newFailing(t, false)
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {rate: {calls: 0.01, burst: 3}, concurrency: {queue: 0}}}`))
	c := w.dial(t, "/mcp/a", `{}`)
	for i := range 3 {
		if got := resultText(t, c.ask("tools/call", `{"name":"plain"}`)); got != "done" {
			t.Errorf("call %d: %q", i, got)
		}
	}
	e := wantRefused(t, c.request("tools/call", `{"name":"plain"}`))
	if e.RetryAfter < 2 || e.RetryAfter > 100 || !strings.Contains(e.Message, "servers.a.policy.rate") {
		t.Errorf("refused with %+v, want up to 100 s and the key", e)
	}
	wantRefused(t, w.modern(t, "/mcp/a", `{}`).request("tools/call", "reads", `{"name":"reads"}`))
	if e := wantKind(t, c.ask("resources/read", `{"uri":"r://x"}`), api.KindRefused); e.RetryAfter < 1 {
		t.Errorf("a read is refused with %+v", e)
	}
	r := w.do(t, "POST", "/v1/call", `{"tool":"a__plain"}`, "Content-Type", "application/json")
	if r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
		t.Errorf("by the control API: status %d, Retry-After %q, %s", r.status, r.header.Get("Retry-After"), r.body)
	}
	if n := up.callsOf("plain") + up.callsOf("reads") + len(up.of("resources/read")); n != 3 {
		t.Errorf("%d calls came, want 3", n)
	}
	if n := w.metric(t, "tine_refused_total", `reason="rate",server="a"`); n != 4 {
		t.Errorf("%v refusals counted, want 4", n)
	}
}

// TestRateIsFair queues for the rate as two principals, one of them late.
func TestRateIsFair(t *testing.T) {
	t.Parallel()
	up := script(t, true, map[string]string{"tools/list": hintedTools})
	came := make(chan string, 64)
	up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		came <- argument(in)
		writeResult(w, in, done)
	})
	w := open(t, twoPeople+servers("a", `{url: "`+up.URL+`", policy: {rate: {calls: 0.001, burst: 1}, concurrency: {calls: 1, wait: 1m}}}`)) // one by one, so that they come in the order of their turns
	var answers []<-chan *reply
	answers = append(answers, w.callAs(t, "ada0", asAda...))
	take(t, came)
	for i := 1; i <= 5; i++ {
		answers = append(answers, w.callAs(t, "ada"+strconv.Itoa(i), asAda...))
		w.queued(t, i)
	}
	answers = append(answers, w.callAs(t, "bob", asBob...))
	w.queued(t, 6)
	// Raised while they wait: they keep their places.
	var s api.Server
	r := w.do(t, "PATCH", "/v1/servers/a", `{"set":{"policy":{"rate":{"calls":20}}}}`, "Content-Type", "application/json", "Authorization", "Bearer "+operator)
	if r.status != http.StatusOK {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	decode(t, r.body, &s)
	var order []string
	for range 6 {
		order = append(order, take(t, came))
	}
	if at := slices.Index(order, "bob"); at < 0 || at > 1 {
		t.Errorf("the calls came as %q: bob had to wait for more than one of ada's", order)
	}
	for _, ch := range answers {
		if got := resultText(t, take(t, ch).answer()); got != "done" {
			t.Errorf("got %q", got)
		}
	}
}

// TestWaitersThatLeave has clients of each kind go away while they wait: their
// places are free at once, and nothing of them is ever sent.
func TestWaitersThatLeave(t *testing.T) {
	t.Parallel()
	up, came, let := oneByOne(t)
	w := open(t, servers("a", `{url: "`+up.URL+`", policy: {concurrency: {calls: 1, queue: 3, wait: 1m}}}`))
	first := w.callAs(t, "first")
	take(t, came)
	leave := func(path, body string, headers ...string) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", w.at(path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for ; len(headers) > 0; headers = headers[2:] {
			req.Header.Set(headers[0], headers[1])
		}
		go func() {
			if resp, err := w.http.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		return cancel
	}
	old := w.dial(t, "/mcp/a", `{}`)
	for round := range 4 {
		modernGone := leave("/mcp/a", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plain",`+meta(`{}`)+`}}`, modernHeaders("tools/call", "plain")...)
		w.queued(t, 1)
		controlGone := leave("/v1/call", `{"tool":"a__plain"}`, "Content-Type", "application/json")
		w.queued(t, 2)
		cancelled := make(chan struct{})
		go func() {
			defer close(cancelled)
			old.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":"x%d","method":"tools/call","params":{"name":"plain"}}`, round))
		}()
		w.queued(t, 3)
		modernGone()
		w.queued(t, 2)
		controlGone()
		w.queued(t, 1)
		old.post(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x%d"}}`, round))
		w.queued(t, 0)
		<-cancelled
	}
	last := w.callAs(t, "last")
	w.queued(t, 1)
	let <- struct{}{}
	let <- struct{}{}
	for _, ch := range []<-chan *reply{first, last} {
		if got := resultText(t, take(t, ch).answer()); got != "done" {
			t.Errorf("got %q", got)
		}
	}
	if n := up.callsOf("plain"); n != 2 {
		t.Errorf("%d calls came, want 2", n)
	}
	testkit.Eventually(t, "nothing is running", func() bool { s := w.server(t, "a"); return s.InFlight == 0 && s.Queue == 0 && w.gw.InFlight() == 0 })
}

// TestLimitsUnderChurn throws calls at both limits, of two principals, many of
// whom leave at some moment. What is answered arrived once, what is refused
// never, and nothing is left behind.
func TestLimitsUnderChurn(t *testing.T) {
	t.Parallel()
	up := script(t, true, map[string]string{"tools/list": hintedTools})
	up.on("tools/call", func(w http.ResponseWriter, r *http.Request, in received) {
		select {
		case <-time.After(time.Duration(rand.IntN(3)) * time.Millisecond):
			writeResult(w, in, done)
		case <-r.Context().Done():
		}
	})
	w := open(t, twoPeople+servers("a", `{url: "`+up.URL+`", policy: {rate: {calls: 2000, burst: 5}, concurrency: {calls: 3, queue: 12, wait: 200ms}}}`))
	var mu sync.Mutex
	outcome := map[string]string{}
	var wg sync.WaitGroup
	for who, headers := range map[string][]string{"ada": asAda, "bob": asBob} {
		for i := range 12 {
			wg.Go(func() {
				for j := range 25 {
					n := fmt.Sprintf("%s-%d-%d", who, i, j)
					ctx, cancel := context.WithCancel(t.Context())
					if rand.IntN(3) == 0 {
						time.AfterFunc(time.Duration(rand.IntN(4000))*time.Microsecond, cancel)
					}
					got := w.churn(t, ctx, n, headers)
					cancel()
					mu.Lock()
					outcome[n] = got
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	arrived := map[string]int{}
	for _, in := range up.of("tools/call") {
		arrived[argument(in)]++
	}
	count := map[string]int{}
	for n, got := range outcome {
		count[got]++
		switch {
		case got == "done" && arrived[n] != 1:
			t.Errorf("%s was answered and arrived %d times", n, arrived[n])
		case got == "refused" && arrived[n] != 0:
			t.Errorf("%s was refused and arrived %d times", n, arrived[n])
		case arrived[n] > 1:
			t.Errorf("%s arrived %d times", n, arrived[n])
		case got != "done" && got != "refused" && got != "left":
			t.Errorf("%s: %s", n, got)
		}
	}
	t.Logf("of 600 calls: %v", count)
	if count["done"] == 0 {
		t.Error("no call came through")
	}
	testkit.Eventually(t, "nothing is left", func() bool { s := w.server(t, "a"); return s.InFlight == 0 && s.Queue == 0 })
	if got := resultText(t, take(t, w.callAs(t, "after", asBob...)).answer()); got != "done" {
		t.Errorf("afterwards: %q", got)
	}
}

// churn makes one call that may be left at any moment.
func (w *world) churn(t *testing.T, ctx context.Context, n string, headers []string) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"plain","arguments":{"n":%q},%s}}`, n, meta(`{}`))
	req, err := http.NewRequestWithContext(ctx, "POST", w.at("/mcp/a"), strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for h := append(modernHeaders("tools/call", "plain"), headers...); len(h) > 0; h = h[2:] {
		req.Header.Set(h[0], h[1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return "left"
	}
	defer resp.Body.Close()
	var m struct {
		Result struct {
			IsError bool
			Meta    map[string]api.Error `json:"_meta"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		if ctx.Err() != nil {
			return "left"
		}
		return err.Error()
	}
	if !m.Result.IsError {
		return "done"
	}
	e := m.Result.Meta["tine/error"]
	if e.Kind == api.KindRefused && e.RetryAfter > 0 {
		return "refused"
	}
	if ctx.Err() != nil {
		return "left"
	}
	return fmt.Sprintf("%+v", e)
}
