package upstream

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/wire"
)

// TestTurnStaysHere holds that what a model said, which a caller sends for the trajectory,
// reaches no server of either era.
func TestTurnStaysHere(t *testing.T) {
	for _, modern := range []bool{true, false} {
		for _, client := range []bool{true, false} {
			p, err := wire.ScanParams(wire.MethodCallTool, []byte(`{"_meta":{"k":1,"`+wire.MetaTurn+`":{"text":"a secret thought"}},"name":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			c := newConn("s", nil, nil)
			if c.hello.Store(&Hello{Version: wire.LatestLegacy}); modern {
				c.hello.Store(&Hello{Version: wire.Latest})
			}
			tr := &catching{}
			c.t = tr
			if _, err := c.exchange(t.Context(), &Request{Method: wire.MethodCallTool, Params: p, Client: &Client{Modern: client}}); err != nil {
				t.Fatal(err)
			}
			if got := string(tr.frame); strings.Contains(got, "thought") || !strings.Contains(got, `"k":1`) || !json.Valid(tr.frame) {
				t.Errorf("from modern %v to modern %v: %s", client, modern, got)
			}
		}
	}
}

// TestTraceReachesTheParams looks at the params that a server would get, for
// every pair of eras and every form of _meta.
func TestTraceReachesTheParams(t *testing.T) {
	const trace = "00-11111111111111111111111111111111-2222222222222222-01"
	for _, tt := range []struct {
		name           string
		client, server bool // modern
		params         string
		state, want    string // want: the tracestate the server gets
	}{
		{"no params", false, false, ``, "", ""},
		{"no meta", false, false, `{"name":"x"}`, "a=b", "a=b"},
		{"null meta", false, false, `{"_meta":null,"name":"x"}`, "", ""},
		{"empty meta", false, false, `{"_meta":{ },"name":"x"}`, "", ""},
		{"its own", false, false, `{"_meta":{"traceparent":"00-old","tracestate":"o=ld","k":1},"name":"x"}`, "n=ew", "n=ew"},
		{"its own without a state of ours", false, false, `{"_meta":{"tracestate":"o=ld","traceparent":"00-old"}}`, "", ""},
		{"to a modern server", false, true, `{"_meta":{"traceparent":"00-old"},"name":"x"}`, "", ""},
		{"to a modern server, no meta", false, true, `{"name":"x"}`, "a=b", "a=b"},
		{"modern to legacy", true, false, `{"_meta":{"` + wire.MetaVersion + `":"2026-07-28","traceparent":"00-old","progressToken":1},"name":"x"}`, "", ""},
		{"modern to legacy, nothing of it", true, false, `{"_meta":{"` + wire.MetaVersion + `":"2026-07-28"},"name":"x"}`, "a=b", "a=b"},
		{"modern to modern", true, true, `{"_meta":{"` + wire.MetaVersion + `":"2026-07-28"},"name":"x"}`, "a=b", "a=b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := wire.ScanParams(wire.MethodCallTool, []byte(tt.params))
			if err != nil {
				t.Fatal(err)
			}
			c := newConn("s", nil, nil)
			if c.hello.Store(&Hello{Version: wire.LatestLegacy}); tt.server {
				c.hello.Store(&Hello{Version: wire.Latest})
			}
			tr := &catching{}
			c.t = tr
			req := &Request{Method: wire.MethodCallTool, Params: p, Client: &Client{Modern: tt.client}, Trace: trace, TraceState: tt.state}
			if _, err := c.exchange(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			var got struct {
				Params struct {
					Meta map[string]any `json:"_meta"`
				} `json:"params"`
			}
			if err := json.Unmarshal(tr.frame, &got); err != nil {
				t.Fatalf("%v in %s", err, tr.frame)
			}
			if got.Params.Meta[wire.MetaTraceparent] != trace {
				t.Errorf("traceparent in %s", tr.frame)
			}
			if state, _ := got.Params.Meta[wire.MetaTracestate].(string); state != tt.want {
				t.Errorf("tracestate %q, want %q", state, tt.want)
			}
			if _, has := got.Params.Meta["k"]; has != (tt.name == "its own") {
				t.Errorf("other members: %s", tr.frame)
			}
		})
	}
}

// TestCallerReachesTheParams checks that a server that acts for its callers gets
// the handle and the name of the call, and nothing that the client wrote in its place, and that what is
// kept of the request has neither.
func TestCallerReachesTheParams(t *testing.T) {
	version := `"` + wire.MetaVersion + `":"2026-07-28"`
	for _, meta := range []string{
		``, `"_meta":null,`, `"_meta":{},`, `"_meta":{"k":1},`, `"_meta":{"tine/caller":"forged"},`, `"_meta":{"k":1,"tine/caller":{"deep":["forged"]}},`,
		`"_meta":{"tine/caller":"forged","tine/call":"forged","tine/caller":"forged"},`, `"_meta":{"tine\/c\u0061ller":"forged","progressToken":1},`,
	} {
		for _, tt := range []struct{ client, server, trace bool }{{}, {trace: true}, {server: true}, {client: true}, {client: true, trace: true}, {client: true, server: true}} {
			params := `{` + meta + `"name":"x"}`
			if tt.client {
				params = `{"_meta":{` + strings.TrimSuffix(strings.TrimPrefix(meta, `"_meta":{`), `},`)
				if params = strings.TrimSuffix(params, `"_meta":null,`); !strings.HasSuffix(params, "{") {
					params += ","
				}
				params += version + `},"name":"x"}`
			}
			p, err := wire.ScanParams(wire.MethodCallTool, []byte(params))
			if err != nil {
				t.Fatalf("%v in %s", err, params)
			}
			c := newConn("s", nil, nil)
			if c.hello.Store(&Hello{Version: wire.LatestLegacy}); tt.server {
				c.hello.Store(&Hello{Version: wire.Latest})
			}
			tr := &catching{}
			c.t = tr
			req := &Request{Method: wire.MethodCallTool, Params: p, Client: &Client{Modern: tt.client}, Caller: "handle", Within: "handle"}
			if tt.trace {
				req.Trace = "00-11111111111111111111111111111111-2222222222222222-01"
			}
			if _, err := c.exchange(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			var got struct {
				Params struct {
					Meta map[string]any `json:"_meta"`
				} `json:"params"`
			}
			if err := json.Unmarshal(tr.frame, &got); err != nil {
				t.Fatalf("%v in %s", err, tr.frame)
			}
			if got.Params.Meta[wire.MetaTineCaller] != "handle" || got.Params.Meta[wire.MetaTineCall] != "handle" || bytes.Contains(tr.frame, []byte("forged")) {
				t.Errorf("%+v of %s: %s", tt, params, tr.frame)
			}
			if bytes.Contains(req.Params.Raw, []byte("handle")) {
				t.Errorf("what is kept has it: %s", req.Params.Raw)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for header, want := range map[string]int{
		"": 0, "7": 7, " 7 ": 7, "-3": 0, "soon": 0, "999999999": maxRetryAfter,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30, "Fri, 02 Jan 2026 03:04:00 GMT": 0, "Fri, 02 Jan 2099 03:04:00 GMT": maxRetryAfter,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %d, want %d", header, got, want)
		}
	}
}

// TestProgressRenewsTheDeadline holds that a call's time starts anew with
// progress, and never beyond the most it may take.
func TestProgressRenewsTheDeadline(t *testing.T) {
	var c clock
	d := c.add(time.Hour, 90*time.Minute, func(error) {})
	defer c.remove(d)
	first := d.at
	d.progress()
	if d.at.Before(first) {
		t.Error("progress shortened the time")
	}
	if most := d.most.Sub(first); most > 31*time.Minute || most < 29*time.Minute {
		t.Errorf("%v may be added in all", most)
	}
	d.most = first.Add(-1)
	if d.progress(); !d.at.Equal(d.most) {
		t.Error("progress went beyond the most")
	}
	none := c.add(0, 0, func(error) {})
	defer c.remove(none)
	if none.progress(); !none.at.IsZero() {
		t.Error("progress made a deadline where there is none")
	}
	(*deadline)(nil).progress()
}
