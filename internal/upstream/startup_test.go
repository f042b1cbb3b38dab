package upstream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// checked is an Upstream whose instances are asked for the tool ready.
func checked(o *upstream.Options) {
	o.Startup = &upstream.Startup{Tool: "ready", Arguments: json.RawMessage(`{"deep":true}`)}
}

func TestStartupCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(i *instance, m message)
		want   string // of the first call
		stops  bool
	}{
		"fine": {func(i *instance, m message) { i.rope.answer(m, `{"content":[]}`) }, `"name":"x"`, false},
		"the tool's own error": {func(i *instance, m message) {
			i.rope.answer(m, `{"content":[{"type":"text","text":"no disk"}],"isError":true}`)
		}, `startup check, tool "ready", failed: no disk`, true},
		"an error":     {func(i *instance, m message) { i.rope.refuse(m, wire.CodeInvalidParams, "no such tool") }, `startup check, tool "ready", failed: no such tool`, true},
		"says nothing": {func(i *instance, m message) { i.rope.answer(m, `{"isError":true}`) }, "failed: it said no more", true},
		"says much": {func(i *instance, m message) {
			i.rope.refuse(m, wire.CodeInvalidParams, "x"+strings.Repeat("é", 1<<20))
		}, "failed: x" + strings.Repeat("é", 149) + "...", true},
		"dies": {func(i *instance, m message) { i.end(errors.New("out of memory")) }, "out of memory", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, func(i *instance) {
					i.rope.legacy()
					m := i.rope.want(wire.MethodCallTool)
					if !strings.Contains(string(m.params), `"name":"ready"`) || !strings.Contains(string(m.params), `{"deep":true}`) {
						t.Errorf("asked %s", m.params)
					}
					tt.answer(i, m)
					if !tt.stops {
						i.rope.echo()
					}
				}, checked)
				testkit.Has(t, "the first call", newClient("c").calls(t, r, "x"), tt.want)
				if stopped := strings.Contains(r.history(), "stop"); stopped != tt.stops {
					t.Errorf("history: %s", r.history())
				}
				r.Close()
			})
		})
	}
}

// A server that is asked for too long is not there in time.
func TestStartupCheckWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.want(wire.MethodCallTool)
			i.rope.serve(func(message) {})
		}, checked)
		testkit.Has(t, "the first call", newClient("c").calls(t, r, "x"), string(api.KindTimeout), "did not start within")
		r.Close()
	})
}

func TestLostInstanceIsOfKindLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.want(wire.MethodCallTool)
			i.end(fmt.Errorf("the engine was restarted: %w", driver.ErrLost))
		})
		testkit.Has(t, "the call", newClient("c").calls(t, r, "x"), string(api.KindLost), "the engine was restarted")
		r.Close()
	})
}

// What was started with nothing and never answered had nothing to lose, whether or
// not it remembers anything.
func TestWhatNeverBeganLosesNothing(t *testing.T) {
	for name, end := range map[string]func(i *instance){
		"it ends": func(i *instance) {
			i.end(fmt.Errorf("server %q exited with status 1; what it had in memory is lost with it: %w", "srv", driver.ErrLost))
		},
		"it hangs up": func(i *instance) { i.rope.hang() },
	} {
		for _, kept := range []string{api.KeptNothing, ""} {
			t.Run(name+", kept "+kept, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := play(t, end, func(o *upstream.Options) {
						o.Memory = upstream.Memory{Kept: kept, Lost: func(l upstream.Loss) { t.Errorf("it lost %+v", l) }}
					})
					got := newClient("c").calls(t, r, "x")
					testkit.Has(t, "the call", got, "infrastructure: ")
					testkit.Lacks(t, "the call", got, "lost")
					if name == "it ends" {
						testkit.Has(t, "the call", got, `server "srv": did not start: exited with status 1`)
					}
					r.Close()
				})
			})
		}
	}
}

// However many calls were pending, the end of a connection is one failure.
func TestDeathNamesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.want(wire.MethodCallTool)
			i.rope.want(wire.MethodCallTool)
			i.end(errors.New("crashed"))
		})
		var deaths [2]string
		done := make(chan struct{})
		for n := range deaths {
			go func() {
				c := newClient(fmt.Sprint(n))
				_, err := r.Call(t.Context(), c.request(t, wire.MethodCallTool, `{"name":"x"}`))
				deaths[n] = upstream.Death(err)
				done <- struct{}{}
			}()
		}
		<-done
		<-done
		if deaths[0] == "" || deaths[0] != deaths[1] {
			t.Errorf("they died with %q", deaths)
		}
		r.Close()
	})
}
