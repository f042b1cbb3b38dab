package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestAdopts(t *testing.T) {
	hello := `{"version":"2025-11-25","info":{"name":"old","version":"1"},"capabilities":{"tools":{}}}`
	handle := driver.Handle{Driver: "fake", Server: "srv", Data: json.RawMessage(`{"pid":7}`)}
	adopting := func(t *testing.T, a upstream.Adoption, adopt func(r *rig) (driver.Instance, error)) *rig {
		r := &rig{t: t}
		o := r.options()
		o.Adopt = &a
		o.Driver = &fakeDriver{
			start: func(context.Context, driver.Spec) (driver.Instance, error) {
				r.happened("start")
				return r.newInstance(echoing), nil
			},
			adopt: func(_ context.Context, h driver.Handle) (driver.Instance, error) {
				if string(h.Data) != `{"pid":7}` {
					t.Errorf("adopts %+v", h)
				}
				r.happened("adopt")
				return adopt(r)
			},
		}
		r.Upstream = upstream.New(o)
		t.Cleanup(r.Close)
		return r
	}
	t.Run("one that still runs is not greeted again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := adopting(t, upstream.Adoption{Handle: handle, Hello: json.RawMessage(hello)}, func(r *rig) (driver.Instance, error) {
				return r.newInstance(func(i *instance) {
					// Answers to calls of the earlier gateway come now.
					i.rope.say(`half a line","result":{}}`)
					i.rope.say(`{"jsonrpc":"2.0","id":"t0011223344-7","result":{"late":true}}`)
					i.rope.say(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}`)
					if m := i.rope.want(""); m.id != `"q"` || m.err == "" {
						t.Errorf("a request of before got %s", m.raw)
					}
					i.rope.echo()
				}), nil
			})
			synctest.Wait()
			if st := r.Status(); st.State != api.StateReady || st.Hello.Version != wire.V20251125 || !st.Hello.Can("tools") {
				t.Errorf("status %+v", st)
			}
			testkit.Has(t, "the result", newClient("c").calls(t, r, "x"), `"structuredContent":{"name":"x"}`)
			if h := r.history(); h != "adopt dial" {
				t.Errorf("history: %s", h)
			}
		})
	})
	for name, tt := range map[string]struct {
		a     upstream.Adoption
		adopt func(r *rig) (driver.Instance, error)
		want  string
	}{
		"gone": {upstream.Adoption{Handle: handle, Hello: json.RawMessage(hello)},
			func(*rig) (driver.Instance, error) { return nil, fmt.Errorf("pid 7: %w", driver.ErrGone) },
			"adopt drop start keep dial keep+hello"},
		"never greeted": {upstream.Adoption{Handle: handle},
			func(r *rig) (driver.Instance, error) { return r.newInstance(func(*instance) {}), nil },
			"adopt stop drop drop start keep dial keep+hello"},
		"unreadable hello": {upstream.Adoption{Handle: handle, Hello: json.RawMessage(`[]`)},
			func(r *rig) (driver.Instance, error) { return r.newInstance(func(*instance) {}), nil },
			"adopt stop drop drop start keep dial keep+hello"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := adopting(t, tt.a, tt.adopt)
				testkit.Has(t, "the result", newClient("c").calls(t, r, "x"), `"name":"x"`)
				if h := r.history(); h != tt.want {
					t.Errorf("history: %s, want %s", h, tt.want)
				}
			})
		})
	}
}

// After a restart of the machine every instance is gone. Only those that a caller
// needs are started then.
func TestGoneAndNotWanted(t *testing.T) {
	for name, tt := range map[string]struct {
		eager, watched bool
		want           string
	}{
		"lazy":    {want: "adopt drop"},
		"eager":   {eager: true, want: "adopt drop start keep dial keep+hello"},
		"watched": {watched: true, want: "adopt drop start keep dial keep+hello"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{t: t}
				o := r.options()
				o.Eager = tt.eager
				o.Adopt = &upstream.Adoption{Handle: driver.Handle{Driver: "fake"}, Hello: json.RawMessage(`{"version":"2025-11-25"}`)}
				o.Driver = &fakeDriver{
					start: func(context.Context, driver.Spec) (driver.Instance, error) {
						r.happened("start")
						return r.newInstance(echoing), nil
					},
					adopt: func(context.Context, driver.Handle) (driver.Instance, error) {
						time.Sleep(time.Second)
						r.happened("adopt")
						return nil, driver.ErrGone
					},
				}
				r.Upstream = upstream.New(o)
				t.Cleanup(r.Close)
				if tt.watched {
					defer r.Watch(&watcher{})()
				}
				time.Sleep(time.Minute)
				if h := r.history(); h != tt.want {
					t.Errorf("history: %s, want %s", h, tt.want)
				}
				if st := r.Status(); name == "lazy" && st.State != api.StateIdle {
					t.Errorf("status %+v", st)
				}
				testkit.Has(t, "the first use", newClient("c").calls(t, r, "x"), `"name":"x"`)
				if h := r.history(); h != "adopt drop start keep dial keep+hello" {
					t.Errorf("history: %s", h)
				}
			})
		})
	}
}

func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, echoing)
		c := newClient("c")
		c.calls(t, r, "x")
		r.Leave("")
		r.Leave("")
		r.Close()
		if h := r.history(); h != "start keep dial keep+hello leave" {
			t.Errorf("history: %s", h)
		}
		testkit.Has(t, "a call after", c.calls(t, r, "x"), "refused: ")
	})
}

// An Upstream that is closed while it adopts ends the instance all the same, and
// one that is left has it go on.
func TestEndWhileAdopting(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*upstream.Upstream)
		want string
	}{
		"closed": {(*upstream.Upstream).Close, "adopt adopt stop drop"},
		"left":   {func(u *upstream.Upstream) { u.Leave("") }, "adopt"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{t: t}
				o := r.options()
				o.Adopt = &upstream.Adoption{Handle: driver.Handle{Driver: "fake"}, Hello: json.RawMessage(`{"version":"2025-11-25"}`)}
				first := true
				o.Driver = &fakeDriver{
					start: func(context.Context, driver.Spec) (driver.Instance, error) {
						r.happened("start")
						return r.newInstance(echoing), nil
					},
					adopt: func(ctx context.Context, _ driver.Handle) (driver.Instance, error) {
						r.happened("adopt")
						if first { // and takes long over it
							first = false
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return r.newInstance(echoing), nil
					},
				}
				r.Upstream = upstream.New(o)
				synctest.Wait()
				tt.end(r.Upstream)
				if h := r.history(); h != tt.want {
					t.Errorf("history: %s, want %s", h, tt.want)
				}
			})
		})
	}
}
