package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestDeadServersLeaveAndComeBack has a server of a merged list die and come
// back, with the cache on and nothing kept of it, and one that never was there.
func TestDeadServersLeaveAndComeBack(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		good, up := numbering(t, true), numbering(t, isModern, `"ttlMs":0`)
		d := newDoor(t, up.URL)
		const policy = `policy: {retry: {pause: 1ms}, breaker: {failures: 2, open: 50ms}}`
		w := open(t, "limits: {list_wait: 5s}\n"+servers("a", `{url: "`+good.URL+`"}`, "d", `{url: "`+d.url()+`", `+policy+`}`))
		old, young := w.dial(t, "/mcp", `{}`), w.modern(t, "/mcp", `{}`)
		lists := func() (out []string) {
			for method := range listsOf {
				out = append(out, string(old.get(method, `{}`)), string(young.get(method, "", `{}`)))
			}
			return out
		}
		whole := func() bool {
			for _, l := range lists() {
				if len(missing(t, []byte(l))) > 0 || strings.Count(l, `"item`) < 2 && strings.Count(l, `__item`) < 2 {
					return false
				}
			}
			return true
		}
		if !whole() {
			t.Fatalf("modern=%v: at first: %s", isModern, lists())
		}
		for round := range 2 {
			d.shut()
			for range 3 {
				for _, l := range lists() {
					gone := missing(t, []byte(l))
					if gone["d"] == "" || len(gone) != 1 || !strings.Contains(l, "item") {
						t.Errorf("modern=%v, round %d: while it is dead: %s", isModern, round, l)
					}
				}
			}
			d.open()
			testkit.Eventually(t, fmt.Sprintf("modern=%v, round %d: it is back", isModern, round), whole)
		}
		if s := w.server(t, "a"); s.State != api.StateReady || s.Breaker != api.BreakerClosed {
			t.Errorf("modern=%v: the good server is %+v", isModern, s)
		}
	}
}

// TestKeptListsOfADeadServer has the list of a server that died in memory: it
// may be given out, but the calls say what is the matter.
func TestKeptListsOfADeadServer(t *testing.T) {
	t.Parallel()
	up := newFailing(t, true)
	d := newDoor(t, up.URL)
	w := open(t, servers("a", `{url: "`+d.url()+`", policy: {retry: {pause: 1ms}}}`))
	c := w.dial(t, "/mcp", `{}`)
	c.get("tools/list", `{}`)
	d.shut()
	c.get("tools/list", `{}`)
	e := tineError(t, c.ask("tools/call", `{"name":"a__plain"}`))
	if e == nil || e.Kind != api.KindInfrastructure && e.Kind != api.KindLost || e.Server != "a" {
		t.Errorf("a call of a dead server: %+v", e)
	}
}

// TestSlowServersHoldUpNobody has a server whose lists take long: those who ask
// meanwhile wait for it once, and then it is in the list from memory.
func TestSlowServersHoldUpNobody(t *testing.T) {
	t.Parallel()
	good, slow := numbering(t, true), numbering(t, true)
	let, inner := make(chan struct{}), slow.answers["tools/list"]
	slow.on("tools/list", func(w http.ResponseWriter, r *http.Request, in received) {
		select {
		case <-let:
			inner(w, r, in)
		case <-r.Context().Done():
		}
	})
	w := open(t, "limits: {list_wait: 50ms}\n"+servers("a", good.URL, "s", slow.URL))
	c := w.modern(t, "/mcp", `{}`)
	testkit.Eventually(t, "the good one is known", func() bool { return strings.Contains(string(c.get("tools/list", "", `{}`)), "a__item1") })
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if l := c.get("tools/list", "", `{}`); missing(t, l)["s"] == "" || !strings.Contains(string(l), "a__item1") {
				t.Errorf("while it is slow: %s", l)
			}
		})
	}
	wg.Wait()
	if n := len(slow.of("tools/list")); n != 1 {
		t.Errorf("the slow one was asked %d times, want 1", n)
	}
	close(let)
	testkit.Eventually(t, "it is in the list", func() bool { return len(missing(t, c.get("tools/list", "", `{}`))) == 0 })
	for range 3 {
		c.get("tools/list", "", `{}`)
	}
	if n := len(slow.of("tools/list")); n != 1 {
		t.Errorf("the slow one was asked %d times, want 1", n)
	}
}
