package upstream_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

// waited is how long a list waits for a server that was first asked so long ago.
func (r *rig) waited(ago, most time.Duration) time.Duration {
	began := time.Now()
	ctx, cancel := r.Awaited(r.t.Context(), wire.MethodListTools, began.Add(-ago), most)
	defer cancel()
	<-ctx.Done()
	return time.Since(began)
}

// Every list waits for a server that is fetched or starts for the first time, for its
// own while, and none for one that failed until that runs.
func TestListsWaitForAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		r, d := playFetch(t, func(i *instance) {
			if i.n > 1 {
				<-let
				echoing(i)
			}
			<-i.done
		})
		want := func(when string, ago, most, want time.Duration) {
			t.Helper()
			if got := r.waited(ago, most); got != want {
				t.Errorf("%s it waits %s, want %s", when, got, want)
			}
		}
		r.Kick()
		synctest.Wait()
		for range 3 {
			want("while it is fetched", time.Hour, 25*time.Second, 25*time.Second)
		}
		close(d.there)
		synctest.Wait()
		want("while it starts", time.Hour, 3*time.Second, 3*time.Second)
		want("with more time than a start has", time.Hour, time.Minute, 11*time.Second)
		if e := r.NotYet(wire.MethodListTools); !strings.Contains(e.Message, "did not start within 10s") {
			t.Errorf("a list says %v", e)
		}
		r.Kick()
		synctest.Wait()
		want("while it is tried again", 0, time.Minute, upstream.RetryWait)
		want("when that takes longer", time.Hour, time.Minute, 0)
		if e := r.NotYet(wire.MethodListTools); !strings.Contains(e.Message, "did not start within 10s") {
			t.Errorf("while it is tried again a list says %v", e)
		}
		close(let)
		if _, err := r.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := r.NotYet(wire.MethodListTools); !strings.Contains(e.Message, "has not answered yet") {
			t.Errorf("when it runs a list says %v", e)
		}
		time.Sleep(time.Minute)
		want("while it runs", 4*time.Second, 5*time.Second, time.Second)
	})
}

// All lists wait once for a server that runs and does not answer, and after that a
// moment, until it does.
func TestListsWaitForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.serve(func(m message) {
				if m.method == "initialize" {
					i.rope.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`, m.id)
				}
			})
		}, func(o *upstream.Options) { o.ConnectTimeout, o.Conn.NoProbe = 10*time.Second, true })
		if _, err := r.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := r.waited(2*time.Second, time.Minute); got != 9*time.Second {
			t.Errorf("it waits %s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := r.ReadList(ctx, upstream.Request{Method: wire.MethodListTools, Client: &upstream.Client{}}); err == nil {
			t.Fatal("it has a list")
		}
		if got := r.waited(0, time.Minute); got != upstream.RetryWait {
			t.Errorf("after a list that did not come it waits %s", got)
		}
	})
}

// A server that shakes hands and does not answer a list in time is failed, with the time
// and the key, as long as it does not answer; its other calls go on.
func TestListsThatDoNotComeAreToldOf(t *testing.T) {
	for name, tt := range map[string]struct {
		connect, each time.Duration
		kept          bool // its lists are, and one is asked for at a time
		early, late   string
	}{
		"its start has more":  {time.Minute, 5 * time.Minute, false, "has 1m to (servers.srv.connect_timeout)", "tools/list: no answer within 1m (servers.srv.connect_timeout)"},
		"its start has less":  {time.Second, 5 * time.Minute, false, "has 30s to (servers.srv.connect_timeout)", "tools/list: no answer within 30s (servers.srv.connect_timeout)"},
		"its lists are kept":  {time.Minute, 5 * time.Minute, true, "has 1m to (servers.srv.connect_timeout)", "tools/list: no answer within 1m (servers.srv.connect_timeout)"},
		"its calls have less": {time.Minute, 4 * time.Second, false, "has 4s to (servers.srv.timeout)", "tools/list: no answer within 4s (servers.srv.timeout)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var well atomic.Bool
				lists := func(well *atomic.Bool) func(*instance) {
					return func(i *instance) {
						i.rope.serve(func(m message) {
							switch {
							case m.method == "initialize":
								i.rope.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"s","version":"1"}}}`, m.id)
							case m.method == "prompts/list", well.Load() && m.method == "tools/list":
								i.rope.say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"prompts":[]}}`, m.id)
							}
						})
					}
				}
				r := play(t, lists(&well), func(o *upstream.Options) {
					o.ConnectTimeout, o.CallTimeout, o.Conn.NoProbe = tt.connect, tt.each, true
					if tt.kept {
						s := policy.NewServer("srv", config.Policy{Cache: config.Cache{Lists: time.Hour}}, nil, nil)
						t.Cleanup(s.Close)
						o.Wrap = func(next upstream.Caller) upstream.Caller { return s.Chain(next, policy.ChainOptions{}) }
					}
				})
				read := func(method string) error {
					_, _, err := r.ReadList(t.Context(), upstream.Request{Method: method, Client: &upstream.Client{}})
					return err
				}
				state := func(when string, state, reason string) {
					t.Helper()
					if s := r.Status(); s.State != state || s.Reason != reason {
						t.Errorf("%s it is %s: %q", when, s.State, s.Reason)
					}
				}
				if _, err := r.Conn(t.Context()); err != nil {
					t.Fatal(err)
				}
				state("before a list", api.StateReady, "")
				if e := r.NotYet(wire.MethodListTools); !strings.Contains(e.Message, "has not answered yet, and "+tt.early) {
					t.Errorf("before that a list says %v", e)
				}
				want := `server "srv": ` + tt.late
				if err := read(wire.MethodListTools); err == nil || err.Error() != want || upstream.Kind(err) != api.KindTimeout {
					t.Errorf("the list says %v", err)
				}
				if e := r.NotYet(wire.MethodListTools); e.Message != want {
					t.Errorf("after that a list says %v", e)
				}
				if err := read(wire.MethodListPrompts); err != nil {
					t.Error(err)
				}
				state("after another list", api.StateFailed, tt.late)
				next := play(t, func(i *instance) { <-i.done })
				next.Follow(r.Upstream)
				if s := next.Status(); s.State != api.StateFailed || s.Reason != tt.late {
					t.Errorf("the one that takes its place is %s: %q", s.State, s.Reason)
				}
				yes := &atomic.Bool{}
				yes.Store(true)
				other := play(t, lists(yes), func(o *upstream.Options) { o.Unanswered, o.Conn.NoProbe = r.Unanswered, true })
				if s := other.Status(); s.State != api.StateFailed || s.Reason != tt.late || !s.Unlisted {
					t.Errorf("another one that was not asked is %s: %q", s.State, s.Reason)
				}
				if _, _, err := other.ReadList(t.Context(), upstream.Request{Method: wire.MethodListTools, Client: &upstream.Client{}}); err != nil {
					t.Error(err)
				}
				if s := other.Status(); s.State != api.StateReady || s.Unlisted {
					t.Errorf("another one that listed is %s: %q", s.State, s.Reason)
				}
				r.Restart()
				state("when another one has started", api.StateFailed, tt.late)
				well.Store(true)
				if err := read(wire.MethodListTools); err != nil {
					t.Error(err)
				}
				state("when it answers", api.StateReady, "")
			})
		})
	}
}

// A list is told why a start failed though the program takes longer to end than the
// list waits.
func TestALateStartIsToldBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := playFetch(t, func(i *instance) {
			<-i.done
			time.Sleep(5 * time.Second)
		})
		close(d.there)
		r.Kick()
		synctest.Wait()
		if got := r.waited(time.Hour, time.Minute); got != 11*time.Second {
			t.Errorf("a list waits %s", got)
		}
		if e := r.NotYet(wire.MethodListTools); !strings.Contains(e.Message, "did not start within 10s") {
			t.Errorf("it says %v", e)
		}
	})
}
