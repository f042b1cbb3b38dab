package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// carriesMemory makes the driver one whose instances are what servers remember.
func carriesMemory(o *upstream.Options) { o.Driver.(*fakeDriver).memory = true }

// A ledger is who hears of losses, and owes them to sessions.
type ledger struct {
	mu     sync.Mutex
	losses []string
	owed   map[string]string
}

// remembers makes a server one that remembers, with so much kept at its end.
func (l *ledger) remembers(kept string, several bool) func(*upstream.Options) {
	l.owed = map[string]string{}
	return func(o *upstream.Options) {
		o.Memory = upstream.Memory{
			Kept: kept, Several: several,
			Lost: func(loss upstream.Loss) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.losses = append(l.losses, fmt.Sprintf("%s %q %s", loss.Kept, loss.Sessions, loss.Why))
				for _, s := range loss.Sessions {
					if loss.Tell && !loss.Told[s] {
						l.owed[s] = loss.Why
					}
				}
			},
			Owed: func(s string) error {
				l.mu.Lock()
				defer l.mu.Unlock()
				why, ok := l.owed[s]
				delete(l.owed, s)
				if !ok {
					return nil
				}
				return upstream.Gone(&api.Error{Kind: api.KindLost, Server: "srv", Message: why})
			},
			Told: func(s string) {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.owed, s)
			},
		}
	}
}

func (l *ledger) told() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.losses, "|")
}

var errKilled = errors.New("ended by signal 9")

// counting is a server whose first instance does something after a call.
func counting(then func(*instance)) func(*instance) {
	return func(i *instance) {
		i.rope.legacy()
		calls := 0
		i.rope.serve(func(m message) {
			if m.method == wire.MethodCallTool {
				calls++
			}
			i.rope.answer(m, `{"n":%d}`, calls)
			if calls == 1 && i.n == 1 && m.method == wire.MethodCallTool {
				go then(i)
			}
		})
	}
}

// One call hears that a memory is lost, whatever it sees of the end: the driver may
// know of it only after the pipe has broken.
func TestALostMemoryIsToldOnce(t *testing.T) {
	const knows = 300 * time.Millisecond // when the driver does
	lost := fmt.Errorf("it was killed, its memory is lost: %w", driver.ErrLost)
	for _, tt := range []struct {
		name string
		ends func(i *instance) // after the first call
	}{
		{"while nobody called", func(i *instance) { i.end(lost) }},
		{"before it was sent", func(i *instance) {
			close(i.rope.deaf)
			time.Sleep(knows) // in a bubble
			i.end(lost)
		}},
		{"under way, known at once", func(i *instance) {
			i.rope.want(wire.MethodCallTool)
			i.end(lost)
		}},
		{"under way, known later", func(i *instance) {
			i.rope.want(wire.MethodCallTool)
			i.rope.hang()
			time.Sleep(knows) // in a bubble
			i.end(lost)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l ledger
				r := play(t, func(i *instance) {
					i.rope.legacy()
					if i.n == 1 {
						m := i.rope.want(wire.MethodCallTool)
						i.rope.answer(m, `{"n":0}`)
						time.Sleep(time.Millisecond) // the answer is read
						tt.ends(i)
						return
					}
					i.rope.serve(func(m message) { i.rope.answer(m, `{"n":%d}`, i.n) })
				}, eager, carriesMemory, l.remembers(api.KeptNothing, false))
				c := newClient("c")
				testkit.Has(t, "a call before", c.calls(t, r, "x"), `{"n":0}`)
				time.Sleep(knows / 2)
				testkit.Has(t, "the first call", c.calls(t, r, "x"), string(api.KindLost), "its memory is lost")
				testkit.Has(t, "what is lost when the call has failed", l.told(), `nothing [""] it was killed`)
				testkit.Has(t, "the next call", c.calls(t, r, "x"), `{"n":2}`)
				if n := len(l.losses); n != 1 {
					t.Errorf("%d losses: %s", n, l.told())
				}
				r.Close()
			})
		})
	}
}

// A call whose instance ends under it says what follows in its session.
func TestALossSaysWhatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		follows := func(o *upstream.Options) {
			o.Memory.Follows = func(session string) string { return "calls of " + session + " are refused" }
		}
		r := play(t, func(i *instance) {
			i.rope.legacy()
			m := i.rope.want(wire.MethodCallTool)
			i.rope.answer(m, `{"n":0}`)
			i.rope.want(wire.MethodCallTool)
			i.end(errKilled)
		}, l.remembers(api.KeptNothing, true), follows)
		call := func() string {
			req := newClient("c").request(t, wire.MethodCallTool, `{"name":"x"}`)
			req.Session = "ses_a"
			return outcome(r.Call(t.Context(), req))
		}
		testkit.Has(t, "a call before", call(), `{"n":0}`)
		got := call()
		if testkit.Has(t, "the call under way", got, "what it had in memory is lost; calls of ses_a are refused"); strings.Contains(got, "begins anew") {
			t.Errorf("it is told %s", got)
		}
		r.Close()
	})
}

// What an end costs depends on what the server remembers, and on who ended it.
func TestLosses(t *testing.T) {
	kill := func(r *rig, i *instance) { i.end(errKilled) }
	for name, tt := range map[string]struct {
		kept   string
		uncall bool // it was never called
		end    func(r *rig, i *instance)
		losses string
		next   string // the next call
	}{
		"killed":                      {kept: api.KeptNothing, end: kill, losses: `nothing [""] ended by signal 9`, next: "lost: ended by signal 9"},
		"killed, with files":          {kept: api.KeptFiles, end: kill, losses: `files [""] ended by signal 9`, next: `{"n":1}`},
		"killed, remembering nothing": {end: kill, next: `{"n":1}`},
		"killed, and never called":    {kept: api.KeptNothing, uncall: true, end: kill, next: `{"n":1}`},
		"stopped by the gateway":      {kept: api.KeptNothing, end: func(r *rig, _ *instance) { r.Suspend(context.Background(), "stopped") }, losses: `nothing [""] stopped`},
		"changed by a reload":         {kept: api.KeptFiles, end: func(r *rig, _ *instance) { r.Drain(context.Background(), "changed") }, losses: `files [""] changed`},
		"closed with its session":     {kept: api.KeptNothing, end: func(r *rig, _ *instance) { r.Close() }},
		"left for the next gateway":   {kept: api.KeptNothing, end: func(r *rig, _ *instance) { r.Leave("stopped") }},
		"stopped, and never called":   {kept: api.KeptNothing, uncall: true, end: func(r *rig, _ *instance) { r.Suspend(context.Background(), "stopped") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l ledger
				var first *instance
				r := play(t, func(i *instance) {
					if i.n == 1 {
						first = i
					}
					counting(func(*instance) {})(i)
				}, eager, l.remembers(tt.kept, false))
				synctest.Wait()
				c := newClient("c")
				if !tt.uncall {
					testkit.Has(t, "the call", c.calls(t, r, "x"), `{"n":1}`)
				}
				tt.end(r, first)
				synctest.Wait()
				if got := l.told(); got != tt.losses {
					t.Errorf("the losses are %q, want %q", got, tt.losses)
				}
				if tt.next != "" {
					testkit.Has(t, "the next call", c.calls(t, r, "x"), tt.next)
					testkit.Has(t, "the one after that", c.calls(t, r, "x"), `{"n":`)
				}
			})
		})
	}
}

// An instance that several sessions use is lost to each of them that called it.
func TestLossOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledger
		var first *instance
		r := play(t, func(i *instance) {
			if i.n == 1 {
				first = i
			}
			counting(func(*instance) {})(i)
		}, eager, l.remembers(api.KeptNothing, true))
		of := func(session string) string {
			req := newClient(session).request(t, wire.MethodCallTool, `{"name":"x"}`)
			req.Session = session
			return outcome(r.Call(t.Context(), req))
		}
		of("a")
		of("b")
		first.end(errKilled)
		synctest.Wait()
		for session, want := range map[string]string{"a": "lost: ", "b": "lost: ", "c": `{"n":`} {
			testkit.Has(t, "the first call of "+session, of(session), want)
			testkit.Has(t, "the next call of "+session, of(session), `{"n":`)
		}
		if got := l.told(); got != `nothing ["a" "b"] ended by signal 9` {
			t.Errorf("the losses are %q", got)
		}
	})
}

// An instance that died between two gateways is lost if an earlier one had called
// it, which its handle tells.
func TestLossBetweenGateways(t *testing.T) {
	for _, tt := range []struct {
		called bool
		gone   error
		want   string
	}{
		{true, driver.ErrGone, `nothing [""] pid 7`},
		{false, driver.ErrGone, ""},
		// It was suspended, and the gateway killed before it could forget the instance.
		{true, fmt.Errorf("%w, %w", driver.ErrGone, driver.ErrKept), ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l ledger
			var kept json.RawMessage
			keeping := func(o *upstream.Options) {
				o.Keep = func(_ driver.Handle, hello json.RawMessage) error {
					kept = hello
					return nil
				}
			}
			r := play(t, counting(func(*instance) {}), eager, l.remembers(api.KeptNothing, false), keeping)
			synctest.Wait()
			if tt.called {
				newClient("c").calls(t, r, "x")
			}
			r.Leave("stopped")
			next := play(t, counting(func(*instance) {}), l.remembers(api.KeptNothing, false), func(o *upstream.Options) {
				o.Adopt = &upstream.Adoption{Handle: driver.Handle{Driver: "fake"}, Hello: kept}
				o.Driver.(*fakeDriver).adopt = func(context.Context, driver.Handle) (driver.Instance, error) {
					return nil, fmt.Errorf("pid 7: %w", tt.gone)
				}
			})
			synctest.Wait()
			if got := l.told(); got != tt.want {
				t.Errorf("called %t, %v: the losses are %q, want %q", tt.called, tt.gone, got, tt.want)
			}
			first := newClient("c").calls(t, next, "x")
			if strings.HasPrefix(first, "lost: ") != (tt.want != "") {
				t.Errorf("called %t, %v: the first call got %s", tt.called, tt.gone, first)
			}
			testkit.Has(t, "the next call", newClient("c").calls(t, next, "x"), `{"n":`)
		})
	}
}

// A server that is reached and forgets the session it gave us has lost what was
// called in it; no call is made again in another.
func TestHTTPServerForgetsWhatWasCalled(t *testing.T) {
	var l ledger
	s := &web{t: t, session: "x", handle: echoWeb}
	r, _ := reach(t, s, func(o *upstream.Options, _ *driver.Endpoint) { l.remembers(api.KeptNothing, false)(o) })
	if _, err := r.Conn(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.forget() // nothing was called yet
	c := newClient("c")
	testkit.Has(t, "the first call", c.calls(t, r, "x"), `{"got":`)
	s.forget()
	testkit.Has(t, "the call after it forgot", c.calls(t, r, "x"), "lost: ", "does not know its session")
	testkit.Has(t, "the next call", c.calls(t, r, "x"), `{"got":`)
	if got := l.told(); got != `nothing [""] it does not know its session any more: it was restarted, or forgot` {
		t.Errorf("the losses are %q", got)
	}
}

// A server that can't be held is said so once: drivers say it, and who.
func TestWhatCantBeHeldIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.unheld = fmt.Errorf("server %q can't be held: it hangs", "srv")
			i.rope.legacy()
			i.rope.serve(func(message) {})
		}, eager)
		synctest.Wait()
		_, _, err := r.Hold(t.Context())
		if got, want := outcome(nil, err), `infrastructure: server "srv": can't be held: it hangs`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		r.Close()
	})
}

func TestCause(t *testing.T) {
	for said, want := range map[string]string{
		"was killed by signal 9": "was killed by signal 9",
		"the sandbox has ended, and what it had in memory is lost with it: instance is gone, instance is lost": "the sandbox has ended",
		"was ended by signal 9; what it had in memory is lost with it: instance is lost":                       "was ended by signal 9",
		"instance is gone": "instance is gone",
	} {
		if got := upstream.Cause(said); got != want {
			t.Errorf("%q became %q, want %q", said, got, want)
		}
	}
}

// A start that finds the state lost fails its call for good: a retry would be
// answered by a server that begins anew.
func TestALostStateIsNotRetried(t *testing.T) {
	var l ledger
	starts := 0
	r := play(t, nil, l.remembers(api.KeptNothing, false), func(o *upstream.Options) {
		o.Driver.(*fakeDriver).start = func(context.Context, driver.Spec) (driver.Instance, error) {
			starts++
			return nil, fmt.Errorf("the container that was its state is gone: %w", driver.ErrLost)
		}
	})
	_, err := r.Call(t.Context(), newClient("c").request(t, wire.MethodCallTool, `{"name":"x"}`))
	if upstream.Kind(err) != api.KindLost || !upstream.StateLost(err) || upstream.Unsent(err) || starts != 1 {
		t.Errorf("after %d starts: %v", starts, err)
	}
}
