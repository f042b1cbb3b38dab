package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/wire"
)

const holdBody = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__hold"}}`

// cutWays are the ways in by which a call can be cut off. Each makes one call, which
// holds, and returns how to get its answer.
var cutWays = map[string]func(t *testing.T, w *world) (answer func() []byte){
	"plain": func(t *testing.T, w *world) func() []byte {
		return later(func() []byte {
			return w.do(t, "POST", "/mcp", holdBody, "Content-Type", "application/json").answer().raw
		})
	},
	"events": func(t *testing.T, w *world) func() []byte {
		return later(func() []byte {
			return w.do(t, "POST", "/mcp", holdBody, "Content-Type", "application/json", "Accept", "text/event-stream").answer().raw
		})
	},
	"batch": func(t *testing.T, w *world) func() []byte {
		return later(func() []byte {
			return []byte(strings.Trim(string(w.do(t, "POST", "/mcp", "["+holdBody+"]", "Content-Type", "application/json").body), "[]"))
		})
	},
	"handshake": func(t *testing.T, w *world) func() []byte {
		c := w.dial(t, "/mcp", `{}`)
		return later(func() []byte { return c.request("tools/call", `{"name":"a__hold"}`).answer().raw })
	},
	"stateless": func(t *testing.T, w *world) func() []byte {
		c := w.modern(t, "/mcp", `{}`)
		return later(func() []byte { return c.ask("tools/call", "a__hold", `{"name":"a__hold"}`).raw })
	},
	"pending input": func(t *testing.T, w *world) func() []byte {
		c := w.modern(t, "/mcp", `{"elicitation":{}}`)
		return later(func() []byte { return c.ask("tools/call", "a__hold", `{"name":"a__hold"}`).raw })
	},
	"event stream": func(t *testing.T, w *world) func() []byte {
		s, post := openEvents(t, w, "/sse")
		w.do(t, "POST", post, holdBody, "Content-Type", "application/json")
		return later(func() []byte { return s.until("").raw })
	},
	"stdio": func(t *testing.T, w *world) func() []byte {
		in, out, _ := serveStdio(t, w, "", false)
		if _, err := io.WriteString(in, holdBody+"\n"); err != nil {
			t.Fatal(err)
		}
		return later(func() []byte {
			line, err := bufio.NewReader(out).ReadBytes('\n')
			if err != nil {
				t.Error(err)
			}
			return line
		})
	},
}

func later(f func() []byte) func() []byte {
	got := make(chan []byte, 1)
	go func() { got <- f() }()
	return func() []byte { return <-got }
}

// TestCutOff checks that a call which takes longer than a stop waits is answered on
// every way in, with the kind that the journal has too.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for name, way := range cutWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up, started, _ := blocking(t, name != "pending input")
			w := open(t, "limits: {drain: 7s}\n"+servers("a", up.URL))
			answer := way(t, w)
			take(t, started)
			over, end := context.WithCancel(t.Context())
			end()
			w.gw.Drain(over)
			var m struct {
				Result struct {
					IsError bool
					Meta    struct {
						Error api.Error `json:"tine/error"`
					} `json:"_meta"`
				}
			}
			raw := answer()
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Fatalf("%v: %s", err, raw)
			}
			e := m.Result.Meta.Error
			if !m.Result.IsError || e.Kind != api.KindInfrastructure || e.Server != "a" || e.Retryable {
				t.Errorf("the answer is %s", raw)
			}
			for _, want := range []string{"stopped", "7s", "limits.drain", "not known whether"} {
				if !strings.Contains(e.Message, want) {
					t.Errorf("%q lacks %q", e.Message, want)
				}
			}
			wantCalls(t, w, api.KindInfrastructure)
		})
	}
}

// TestCutOffByControl checks the same for a call of the control API.
func TestCutOffByControl(t *testing.T) {
	t.Parallel()
	up, started, _ := blocking(t, true)
	w := open(t, servers("a", up.URL))
	answer := later(func() []byte {
		r := w.do(t, "POST", "/v1/call", `{"tool":"a__hold"}`, "Content-Type", "application/json")
		if r.status != http.StatusBadGateway {
			t.Errorf("status %d", r.status)
		}
		return r.body
	})
	take(t, started)
	over, end := context.WithCancel(t.Context())
	end()
	w.gw.Drain(over)
	if raw := string(answer()); !strings.Contains(raw, "limits.drain") || !strings.Contains(raw, `"kind":"infrastructure"`) {
		t.Errorf("the answer is %s", raw)
	}
	wantCalls(t, w, api.KindInfrastructure)
}

// TestStdioStopped checks that the end of a gateway on stdio answers the running
// call: at once, where the client sends no more.
func TestStdioStopped(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		up, started, _ := blocking(t, true)
		w := open(t, "limits: {drain: 0s}\n"+servers("a", up.URL))
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			err := w.gw.ServeStdio(ctx, inR, outW, "", false)
			_ = outW.Close()
			ended <- err
		}()
		if _, err := io.WriteString(inW, holdBody+"\n"); err != nil {
			t.Fatal(err)
		}
		take(t, started)
		if silent {
			_ = inW.Close()
		}
		stop()
		all, err := io.ReadAll(outR)
		if err != nil || !strings.Contains(string(all), "the gateway was stopped") || strings.Count(string(all), "\n") != 1 {
			t.Errorf("answered %q, %v", all, err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = inW.Close()
		wantCalls(t, w, api.KindInfrastructure)
	}
}

// wantCalls checks the outcomes of all calls in the journal, oldest first.
func wantCalls(t *testing.T, w *world, outcomes ...api.Kind) {
	t.Helper()
	testkit.Eventually(t, "the calls are in the journal", func() bool {
		list, err := w.journal.List(t.Context(), store.CallFilter{})
		return err == nil && len(list) >= len(outcomes)
	})
	list, err := w.journal.List(t.Context(), store.CallFilter{})
	if err != nil || len(list) != len(outcomes) {
		t.Fatalf("the journal has %+v, %v", list, err)
	}
	for i, e := range list {
		if want := outcomes[len(outcomes)-1-i]; e.Outcome != string(want) || e.Method != wire.MethodCallTool {
			t.Errorf("the journal has %+v, want %s", e, want)
		}
	}
}
