package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// batch sends a batch that is taken, and returns its lines by item and how many failed.
func (w *worlds) batch(t testing.TB, body string, who ...string) (map[int]api.BatchLine, int) {
	t.Helper()
	r := w.ask(t, "POST", "/v1/batch", body, who...)
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	return batchLines(t, r.body)
}

func batchLines(t testing.TB, body []byte) (map[int]api.BatchLine, int) {
	t.Helper()
	out := map[int]api.BatchLine{}
	for line := range strings.Lines(string(body)) {
		var l api.BatchLine
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if l.Done {
			return out, *l.Failed
		}
		if _, twice := out[*l.Item]; twice {
			t.Errorf("item %d is answered twice", *l.Item)
		}
		out[*l.Item] = l
	}
	t.Fatalf("the answer has no end: %s", body)
	return nil, 0
}

// opens is n items that open a session.
func opens(n int, body string) string {
	return strings.TrimSuffix(strings.Repeat(`{"open":`+body+`},`, n), ",")
}

func (w *worlds) openCount(t testing.TB, who ...string) int {
	t.Helper()
	n := 0
	for _, s := range want[api.SessionList](t, w, "GET", "/v1/sessions?limit=1000", "", who...).Sessions {
		if s.Kind == api.SessionOpened {
			n++
		}
	}
	return n
}

func TestBatch(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	all, failed := w.batch(t, `{"items":[`+opens(40, `{"labels":{"run":"7"}}`)+`],"at_once":7}`, asAda...)
	if failed != 0 || len(all) != 40 || w.openCount(t, asAda...) != 40 {
		t.Fatalf("%d failed of %d", failed, len(all))
	}
	tokens := map[string]bool{}
	for i, l := range all {
		if l.Opened == nil || l.Opened.Token == "" || l.Opened.URL != w.ts.URL+"/s/"+l.Opened.ID+"/mcp" || l.Opened.Labels["run"] != "7" || l.Error != nil {
			t.Errorf("item %d: %+v", i, l)
		}
		tokens[l.Opened.Token] = true
	}
	if len(tokens) != 40 {
		t.Errorf("%d tokens", len(tokens))
	}
	bobs := w.open(t, `{}`, asBob...)
	one, two := all[0].Opened.ID, all[1].Opened.ID
	all, failed = w.batch(t, fmt.Sprintf(`{"items":[
		{"fork":{"session":%q,"count":3,"labels":{"arm":"x"}}},
		{"fork":{"session":%q}},
		{"call":{"tool":"n__add","session":%q,"meta":{"a":1}}},
		{"call":{"tool":"n__nosuch","session":%q}},
		{"close":{"session":%q}},
		{"close":{"session":%q}},
		{"fork":{"session":%q}},
		{"call":{"tool":"n__add","session":"ses_nosuch"}},
		{"open":{"from":"nosuch"}},
		{"open":{"ttl":"soon"}}]}`, one, two, one, one, all[2].Opened.ID, bobs.ID, bobs.ID), asAda...)
	if failed != 6 || len(all) != 10 {
		t.Errorf("%d failed of %d", failed, len(all))
	}
	if f := all[0].Forks; f == nil || f.Parent != one || len(f.Sessions) != 3 || f.Sessions[0].Labels["arm"] != "x" || f.Sessions[0].URL == "" {
		t.Errorf("forked %+v", all[0])
	}
	if f := all[1].Forks; f == nil || len(f.Sessions) != 1 {
		t.Errorf("forked %+v", all[1])
	}
	if l := all[2]; !strings.Contains(string(l.Result), `"text":"1"`) || !strings.HasPrefix(l.Call, "call_") {
		t.Errorf("called %+v", l)
	}
	if l := all[4]; !l.Closed || l.Error != nil {
		t.Errorf("closed %+v", l)
	}
	for i, status := range map[int]int{3: 400, 5: 404, 6: 404, 7: 404, 8: 404, 9: 400} {
		if l := all[i]; l.Error == nil || l.Status != status || l.Error.Kind != api.KindInvalid || l.Error.Message == "" || l.Closed || l.Opened != nil || l.Forks != nil {
			t.Errorf("item %d: %+v %+v, want status %d", i, l, l.Error, status)
		}
	}
	if s := want[api.Session](t, w, "GET", "/v1/sessions/"+bobs.ID, "", asBob...); !s.Closed.IsZero() {
		t.Error("ada closed bob's session")
	}
	if calls := ofType(w.steps(t, one, asAda...), "call"); len(calls) != 2 || string(calls[0].Meta) != `{"a":1}` && string(calls[1].Meta) != `{"a":1}` {
		t.Errorf("the calls are %+v", calls)
	}
}

func TestBatchChecks(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	for body, says := range map[string]string{
		`{}`:                                     "at least one",
		`{"items":[]}`:                           "at least one",
		`{"items":[` + opens(10001, `{}`) + `]}`: "10001 items and may be 10000",
		`{"items":[{}]}`:                         "items[0] must have one",
		`{"items":[{"open":null}]}`:              "items[0] must have one",
		`{"items":[{"open":{}},{"open":{},"call":{"tool":"x"}}]}`:     "items[1] must have one",
		`{"items":[{"open":{}}],"at_once":257}`:                       "at_once",
		`{"items":[{"open":{}}],"at_once":0}`:                         "at_once",
		`{"items":[{"open":{"lables":{}}}]}`:                          "unknown field",
		`{"items":[{"fork":{}}]}`:                                     "items[0].fork.session",
		`{"items":[{"close":{"session":""}}]}`:                        "items[0].close.session",
		`{"items":[{"open":{}},{"fork":{"session":"x","count":0}}]}`:  "items[1].fork.count must be at least 1",
		`{"items":[{"open":{}},{"call":{"tool":"x"}}],"atomic":true}`: "items[1] must be an open or a fork",
		`{"items":[{"close":{"session":"x"}}],"atomic":true}`:         "items[0] must be an open or a fork",
	} {
		if e := w.refused(t, http.StatusBadRequest, "POST", "/v1/batch", body); e.Kind != api.KindInvalid || !strings.Contains(e.Message, says) {
			t.Errorf("%.80s: %+v, want %q", body, e, says)
		}
	}
	if e := w.refused(t, http.StatusBadRequest, "POST", "/v1/batch", `{"items":[{"open":{}},{"call":{"tool":"x"}}]}`, key("k")...); !strings.Contains(e.Message, "items[1] is a call") {
		t.Errorf("a call with a key: %+v", e)
	}
	if n := w.openCount(t); n != 0 {
		t.Errorf("%d sessions are open after all was refused", n)
	}
}

func TestAtomicBatch(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "sessions: {max: 20, wait: 1ms}\n")
	parent := w.open(t, `{}`)
	w.tool(t, parent.ID, "add")
	fork := `{"fork":{"session":"` + parent.ID + `","count":2}}`
	for what, tt := range map[string]struct {
		items  string
		failed int // the item that is the cause
		status int
		says   string
	}{
		"a snapshot that is not there": {opens(5, `{}`) + `,{"open":{"from":"nosuch"}},` + fork, 5, 404, "nosuch"},
		"a wrong request":              {opens(2, `{}`) + `,{"open":{"idle":"soon"}}`, 2, 400, "idle"},
		"a parent that is not there":   {fork + `,{"fork":{"session":"ses_nosuch"}}`, 1, 404, "ses_nosuch"},
	} {
		all, failed := w.batch(t, `{"atomic":true,"items":[`+tt.items+`]}`)
		if failed != len(all) {
			t.Errorf("%s: %d failed of %d", what, failed, len(all))
		}
		for i, l := range all {
			if l.Error == nil || l.Opened != nil || l.Forks != nil || l.Status != tt.status || strings.Contains(l.Error.Message, "taken back") == (i == tt.failed) || !strings.Contains(l.Error.Message, tt.says) {
				t.Errorf("%s: item %d: %+v %+v", what, i, l, l.Error)
			}
		}
		if n := w.openCount(t); n != 1 {
			t.Errorf("%s: %d sessions are open", what, n)
		}
	}
	// More than there is room for.
	if all, failed := w.batch(t, `{"atomic":true,"items":[`+opens(30, `{}`)+`]}`); failed != 30 || all[0].Error == nil {
		t.Errorf("%d failed of %d", failed, len(all))
	}
	if n := w.openCount(t); n != 1 {
		t.Errorf("%d sessions are open", n)
	}
	all, failed := w.batch(t, `{"atomic":true,"items":[`+opens(3, `{}`)+`,`+fork+`]}`)
	if failed != 0 || len(all) != 4 || len(all[3].Forks.Sessions) != 2 || all[0].Opened.Token == "" || all[0].Opened.URL == "" || w.openCount(t) != 6 {
		t.Errorf("%d failed: %+v", failed, all)
	}
	if got := w.tool(t, all[3].Forks.Sessions[1].ID, "show"); got != "1" {
		t.Errorf("a fork has %s", got)
	}
	w.restart()
	if n := w.openCount(t); n != 6 {
		t.Errorf("after a restart %d sessions are open", n)
	}
}

func TestBatchKeys(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	for _, atomic := range []string{"false", "true"} {
		body := `{"atomic":` + atomic + `,"items":[` + opens(5, `{}`) + `]}`
		before := w.openCount(t, asAda...)
		first, _ := w.batch(t, body, key("k"+atomic, asAda...)...)
		again, failed := w.batch(t, body, key("k"+atomic, asAda...)...)
		w.restart()
		after, _ := w.batch(t, body, key("k"+atomic, asAda...)...)
		if n := w.openCount(t, asAda...); failed != 0 || n != before+5 {
			t.Errorf("atomic %s: %d failed, %d are open", atomic, failed, n)
		}
		for i := range 5 {
			if first[i].Opened.Token != again[i].Opened.Token || first[i].Opened.ID != after[i].Opened.ID || first[i].Opened.Token == "" {
				t.Errorf("atomic %s: item %d is %+v, then %+v, then %+v", atomic, i, first[i].Opened, again[i].Opened, after[i].Opened)
			}
		}
		// The key is for this batch as a whole.
		other := `{"atomic":` + atomic + `,"items":[` + opens(6, `{}`) + `]}`
		if atomic == "false" {
			w.refused(t, http.StatusConflict, "POST", "/v1/batch", other, key("k"+atomic, asAda...)...)
		} else if all, failed := w.batch(t, other, key("k"+atomic, asAda...)...); failed != 6 || all[0].Status != http.StatusConflict {
			t.Errorf("another batch: %d failed, %+v", failed, all)
		}
		if n := w.openCount(t, asAda...); n != before+5 {
			t.Errorf("atomic %s: after another batch %d are open", atomic, n)
		}
		if bobs, failed := w.batch(t, body, key("k"+atomic, asBob...)...); failed != 0 || bobs[0].Opened.ID == first[0].Opened.ID {
			t.Error("bob got ada's sessions")
		}
	}
	// What was taken back may be tried again with the same key.
	s := w.open(t, `{}`, asAda...)
	body := `{"atomic":true,"items":[{"open":{}},{"open":{"from":"later"}}]}`
	if _, failed := w.batch(t, body, key("l", asAda...)...); failed != 2 {
		t.Errorf("%d failed", failed)
	}
	want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{"name":"later"}`, asAda...)
	if all, failed := w.batch(t, body, key("l", asAda...)...); failed != 0 {
		t.Errorf("then %d failed: %+v", failed, all)
	}
	if r := w.ask(t, "POST", "/v1/batch", body, key("a b", asAda...)...); r.status != http.StatusBadRequest {
		t.Errorf("a wrong key: status %d %s", r.status, r.body)
	}
}

// The token of a session is for that session, in a batch too.
func TestBatchOfASessionsToken(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	s, other := w.open(t, `{}`, asAda...), w.open(t, `{}`, asAda...)
	all, failed := w.batch(t, fmt.Sprintf(`{"items":[{"open":{}},{"fork":{"session":%q}},{"call":{"tool":"n__add"}},{"fork":{"session":%q}},{"call":{"tool":"n__add","session":%q}},{"close":{"session":%q}}],"at_once":1}`,
		s.ID, other.ID, other.ID, other.ID), bearer(s.Token)...)
	if failed != 4 || all[1].Forks == nil || all[2].Result == nil {
		t.Errorf("%d failed: %+v", failed, all)
	}
	for i, status := range map[int]int{0: 403, 3: 404, 4: 404, 5: 404} {
		if all[i].Status != status || all[i].Error == nil {
			t.Errorf("item %d: %+v %+v, want status %d", i, all[i], all[i].Error, status)
		}
	}
	if all, failed := w.batch(t, fmt.Sprintf(`{"atomic":true,"items":[{"fork":{"session":%q}},{"open":{}}]}`, s.ID), bearer(s.Token)...); failed != 2 || all[1].Status != 403 {
		t.Errorf("atomic: %d failed: %+v", failed, all)
	}
	// A viewer makes nothing of another's.
	if all, failed := w.batch(t, fmt.Sprintf(`{"items":[{"fork":{"session":%q}},{"close":{"session":%q}}]}`, s.ID, s.ID), asEve...); failed != 2 || all[0].Status != 403 || all[1].Status != 403 {
		t.Errorf("eve: %+v", all)
	}
}

// A batch waits for its own items where there are no more places.
func TestBatchWithFewPlaces(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "limits: {calls: 3}\n")
	if all, failed := w.batch(t, `{"items":[`+opens(30, `{}`)+`]}`); failed != 0 || len(all) != 30 {
		t.Errorf("%d failed of %d: %+v", failed, len(all), all[0].Error)
	}
}

// A client that leaves ends what has not begun, and what an atomic batch has made is
// taken back.
func TestBatchOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	var begun atomic.Int32
	entered, release := make(chan struct{}, 10), make(chan struct{})
	slow := factory(func() *mcp.Server {
		s := sdkServer("slow", nil)
		s.AddTool(&mcp.Tool{Name: "wait", InputSchema: anyObject}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			begun.Add(1)
			entered <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return text("done"), nil
		})
		return s
	})
	w := open(t, "servers:\n  slow: {builtin: everything, scope: shared}\n", map[string]builtin.Kind{"everything": slow})
	ctx, leave := context.WithCancel(t.Context())
	body := `{"at_once":2,"items":[` + strings.TrimSuffix(strings.Repeat(`{"call":{"tool":"slow__wait"}},`, 20), ",") + `]}`
	req, err := http.NewRequestWithContext(ctx, "POST", w.at("/v1/batch"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Within(t, "the first call", entered)
	testkit.Within(t, "the second call", entered)
	leave()
	resp.Body.Close()
	testkit.Eventually(t, "the batch ends", func() bool { return w.gw.InFlight() == 0 })
	close(release)
	if n := begun.Load(); n != 2 {
		t.Errorf("%d calls have begun, want 2", n)
	}
}

// Results come as they are there, also before slower ones.
func TestBatchStreams(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := factory(func() *mcp.Server {
		s := sdkServer("slow", nil)
		s.AddTool(&mcp.Tool{Name: "wait", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-release
			return text("done"), nil
		})
		s.AddTool(&mcp.Tool{Name: "big", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(strings.Repeat("x", 1<<20)), nil
		})
		return s
	})
	w := open(t, "servers:\n  slow: {builtin: everything, scope: shared}\n", map[string]builtin.Kind{"everything": slow})
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.at("/v1/batch"), strings.NewReader(`{"items":[{"call":{"tool":"slow__wait"}},{"call":{"tool":"slow__big"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	var order []int
	for {
		var l api.BatchLine
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		if l.Done {
			break
		}
		if order = append(order, *l.Item); *l.Item == 1 {
			if len(l.Result) < 1<<20 {
				t.Errorf("the big result has %d bytes", len(l.Result))
			}
			close(release)
		}
	}
	if !slices.Equal(order, []int{1, 0}) {
		t.Errorf("the items ended in the order %v", order)
	}
}
