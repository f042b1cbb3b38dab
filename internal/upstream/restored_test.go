package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

const (
	oldGreeting = `{"version":"2025-11-25","info":{"name":"old","version":"1"},"capabilities":{"tools":{},"logging":{}}}`
	newGreeting = `{"version":"2026-07-28","info":{"name":"new","version":"2"},"capabilities":{"tools":{}}}`
)

// awake is an instance that goes on where another was frozen, and can rest.
type awake struct {
	*instance
	hello  string
	forked bool
	rest   func(hello string) error // nil for one that can't
}

func (a *awake) Greeted() (json.RawMessage, bool) {
	if a.hello == "" {
		return nil, false
	}
	return json.RawMessage(a.hello), a.forked
}

func (a *awake) Suspend(_ context.Context, hello json.RawMessage) error {
	if a.rest == nil {
		return errors.New("it has the network of the host")
	}
	if err := a.rest(string(hello)); err != nil {
		return err
	}
	a.r.happened("rest")
	a.end(nil)
	a.script.Wait()
	return nil
}

// wake makes an Upstream whose instances are restored ones.
func wake(t testing.TB, script func(*instance), as awake, change ...func(*upstream.Options)) *rig {
	r := &rig{t: t}
	o := r.options()
	o.Spec.Session = "ses_1"
	o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
		r.happened("start")
		one := as
		one.instance = r.newInstance(script)
		return &one, nil
	}}
	for _, c := range change {
		c(&o)
	}
	r.Upstream = upstream.New(o)
	t.Cleanup(r.Close)
	return r
}

func TestRestoredServerIsNotGreeted(t *testing.T) {
	startup := func(o *upstream.Options) { o.Startup = &upstream.Startup{Tool: "warm-up"} }
	for name, tt := range map[string]struct {
		hello, version string
	}{"legacy": {oldGreeting, wire.V20251125}, "modern": {newGreeting, wire.V20260728}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				r := wake(t, func(i *instance) {
					i.rope.serve(func(m message) {
						got = append(got, m.method+" "+wire.FindString([]byte(m.params), "name"))
						i.rope.answer(m, `{}`)
					})
				}, awake{hello: tt.hello}, startup)
				newClient("c").calls(t, r, "x")
				synctest.Wait()
				if s := strings.Join(got, ","); s != "tools/call x" {
					t.Errorf("the server got %s", s)
				}
				if v := r.Status().Hello.Version; v != tt.version {
					t.Errorf("it speaks %q", v)
				}
				if h := r.history(); h != "start keep+hello dial" {
					t.Errorf("history: %s", h)
				}
			})
		})
	}
	t.Run("one that was started anew is", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := wake(t, echoing, awake{}, startup)
			newClient("c").calls(t, r, "x")
			if h := r.history(); h != "start keep dial keep+hello" {
				t.Errorf("history: %s", h)
			}
		})
	})
	t.Run("one whose record can't be read is", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := wake(t, echoing, awake{hello: `{"version":"1999-01-01"}`, forked: true}, startup)
			newClient("c").calls(t, r, "x")
			if h := r.history(); h != "start keep dial keep+hello" {
				t.Errorf("history: %s", h)
			}
		})
	})
}

// Messages on their way to the original are not for the copy.
func TestRestoredServerOwesAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.serve(func(m message) {
				if m.method == wire.MethodCallTool {
					i.rope.say(`{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}`)
					i.rope.say(`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`)
				}
			})
		})
		c := newClient("c")
		c.ask = func(ctx context.Context, _, _ string) upstream.Reply {
			<-ctx.Done()
			return upstream.Reply{}
		}
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		go func() { _, _ = parent.Call(ctx, c.request(t, wire.MethodCallTool, `{"name":"x"}`)) }()
		synctest.Wait()
		inst, release, err := parent.Hold(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		hello := parent.Greeting(inst)
		release()
		if parent.Greeting(nil) != nil || parent.Greeting(&instance{}) != nil {
			t.Error("an instance that does not run has a greeting")
		}

		var ids []string
		var owed []string
		child := wake(t, func(i *instance) {
			i.rope.say(`{"jsonrpc":"2.0","id":"t0011223344556677-1","result":{"of":"the parent"}}`)
			i.rope.serve(func(m message) {
				switch {
				case m.method == "":
					owed = append(owed, m.id+m.result+fmt.Sprint(m.err != ""))
				default:
					ids = append(ids, m.id)
					i.rope.answer(m, `{"of":"the child"}`)
				}
			})
		}, awake{hello: string(hello)})
		synctest.Wait()
		if got := newClient("d").calls(t, child, "x"); got != `{"of":"the child"}` {
			t.Errorf("the call got %s", got)
		}
		synctest.Wait()
		if len(owed) != 2 || !strings.Contains(strings.Join(owed, " "), `"s"true`) || !strings.Contains(strings.Join(owed, " "), `7{"action":"decline"}false`) {
			t.Errorf("answers to what it had asked before: %q", owed)
		}
		if raw, err := upstream.ReadHello(hello); err != nil || len(raw.Asked) != 2 {
			t.Errorf("greeting %s: %v", hello, err)
		}
		if asked := child.Status().Hello.Asked; asked != nil {
			t.Errorf("they would be answered again: %v", asked)
		}
		stop()
	})
}

func TestWatchdog(t *testing.T) {
	// silent is a server that goes on with the nth message it gets.
	silent := func(n int, got *[]string) func(*instance) {
		return func(i *instance) {
			var first message
			i.rope.serve(func(m message) {
				*got = append(*got, m.method)
				if m.method == wire.MethodCallTool {
					first = m
				}
				if len(*got) == n {
					i.rope.answer(first, `{"ok":true}`)
				}
			})
		}
	}
	for name, tt := range map[string]struct {
		hello, noop string
	}{"legacy": {oldGreeting, wire.MethodPing}, "modern": {newGreeting, wire.MethodDiscover}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				r := wake(t, silent(3, &got), awake{hello: tt.hello})
				if s := newClient("c").calls(t, r, "x"); s != `{"ok":true}` {
					t.Errorf("the call got %s", s)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if s := strings.Join(got, " "); s != "tools/call "+tt.noop+" "+tt.noop {
					t.Errorf("the server got %s", s)
				}
			})
		})
	}
	t.Run("gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			r := wake(t, silent(-1, &got), awake{hello: oldGreeting})
			testkit.Has(t, "the call", newClient("c").calls(t, r, "x"), "timeout: ")
			synctest.Wait()
			if n := strings.Count(strings.Join(got, " "), wire.MethodPing); n != 8 {
				t.Errorf("%d nudges", n)
			}
		})
	})
	t.Run("leaves one alone that speaks, and one that was not restored", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, hello := range []string{oldGreeting, ""} {
				var pings atomic.Int32
				r := wake(t, func(i *instance) {
					if hello == "" {
						i.rope.legacy()
					} else {
						i.rope.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
					}
					i.rope.serve(func(m message) {
						if m.method == wire.MethodPing {
							pings.Add(1)
						}
						if m.method == wire.MethodCallTool {
							time.Sleep(5 * time.Second)
							i.rope.answer(m, `{}`)
						}
					})
				}, awake{hello: hello})
				newClient("c").calls(t, r, "x")
				if pings.Load() != 0 {
					t.Errorf("%q: %d nudges", hello, pings.Load())
				}
			}
		})
	})
	t.Run("ends with the connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			r := wake(t, silent(-1, &got), awake{hello: oldGreeting})
			out := newClient("c").later(t, r, "x")
			synctest.Wait()
			r.Close()
			testkit.Has(t, "the call", <-out, "lost: ")
		})
	})
}

func TestOnFork(t *testing.T) {
	tell := func(f config.OnFork) func(*upstream.Options) {
		return func(o *upstream.Options) { o.OnFork = &f }
	}
	for name, tt := range map[string]struct {
		as     awake
		on     config.OnFork
		answer string // of the tool
		got    string // what the server gets
		want   string // of the call
		keeps  string
	}{
		"notify": {as: awake{hello: oldGreeting, forked: true}, on: config.OnFork{Notify: true},
			got: `notifications/tine/forked {"session":"ses_1","server":"srv"}|tools/call {"name":"x"}`, want: `{}`, keeps: "start keep dial keep+hello"},
		"tool": {as: awake{hello: oldGreeting, forked: true}, on: config.OnFork{Tool: "reseed"}, answer: `{"content":[]}`,
			got: `tools/call {"name":"reseed","arguments":{}}|tools/call {"name":"x"}`, want: `{}`, keeps: "start keep dial keep+hello"},
		"tool says isError": {as: awake{hello: oldGreeting, forked: true}, on: config.OnFork{Tool: "reseed"}, answer: `{"isError":true,"content":[{"type":"text","text":"no seed"}]}`,
			got: `tools/call {"name":"reseed","arguments":{}}`, want: `"reseed", failed: no seed; mend the tool, or set servers.srv.on_fork`, keeps: "start keep dial stop drop"},
		"tool is not there": {as: awake{hello: oldGreeting, forked: true}, on: config.OnFork{Tool: "reseed"},
			got: `tools/call {"name":"reseed","arguments":{}}`, want: `"reseed", failed: no such tool; mend`, keeps: "start keep dial stop drop"},
		"not a copy": {as: awake{hello: oldGreeting}, on: config.OnFork{Tool: "reseed", Notify: true},
			got: `tools/call {"name":"x"}`, want: `{}`, keeps: "start keep+hello dial"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				r := wake(t, func(i *instance) {
					i.rope.serve(func(m message) {
						got = append(got, m.method+" "+m.params)
						switch {
						case m.id == "":
						case wire.FindString([]byte(m.params), "name") != "reseed":
							i.rope.answer(m, `{}`)
						case tt.answer == "":
							i.rope.refuse(m, -32602, "no such tool")
						default:
							i.rope.answer(m, "%s", tt.answer)
						}
					})
				}, tt.as, tell(tt.on))
				testkit.Has(t, "the call", newClient("c").calls(t, r, "x"), tt.want)
				synctest.Wait()
				if s := strings.Join(got, "|"); s != tt.got {
					t.Errorf("the server got %s", s)
				}
				if h := r.history(); h != tt.keeps {
					t.Errorf("history: %s", h)
				}
			})
		})
	}
}

func TestRest(t *testing.T) {
	kept := ""
	keeps := func(hello string) error { kept = hello; return nil }
	for name, tt := range map[string]struct {
		as   awake
		want string
	}{
		"its memory is kept":  {awake{rest: keeps}, "start keep dial keep+hello rest drop"},
		"what can't is ended": {awake{}, "start keep dial keep+hello stop drop"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := wake(t, echoing, tt.as)
				newClient("c").calls(t, r, "x")
				r.Suspend(context.Background(), "")
				r.Suspend(context.Background(), "")
				if h := r.history(); h != tt.want {
					t.Errorf("history: %s", h)
				}
				if tt.as.rest != nil {
					testkit.Has(t, "what is kept", kept, `"version":"2025-11-25"`, `"name":"old"`)
				}
			})
		})
	}
	t.Run("one that does not know how is ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, echoing)
			newClient("c").calls(t, r, "x")
			r.Suspend(context.Background(), "")
			if h := r.history(); h != "start keep dial keep+hello stop drop" {
				t.Errorf("history: %s", h)
			}
		})
	})
	t.Run("one of an earlier gateway that was not adopted yet", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{t: t}
			o := r.options()
			o.Adopt = &upstream.Adoption{Handle: driver.Handle{Driver: "fake"}, Hello: json.RawMessage(oldGreeting)}
			first := true
			o.Driver = &fakeDriver{adopt: func(ctx context.Context, _ driver.Handle) (driver.Instance, error) {
				if first {
					first = false
					<-ctx.Done()
					return nil, ctx.Err()
				}
				r.happened("adopt")
				return &awake{instance: r.newInstance(func(*instance) {}), rest: keeps}, nil
			}}
			r.Upstream = upstream.New(o)
			synctest.Wait()
			r.Suspend(context.Background(), "")
			if h := r.history(); h != "adopt rest drop" || kept != oldGreeting {
				t.Errorf("history: %s, kept %s", h, kept)
			}
		})
	})
}

func TestMarkChangesWithEveryMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var say func(string, ...any)
		r := play(t, func(i *instance) {
			say = i.rope.say
			i.rope.legacy()
			i.rope.echo()
		})
		if m := r.Mark(); m != "" {
			t.Errorf("mark %q without a connection", m)
		}
		newClient("c").calls(t, r, "x")
		synctest.Wait()
		before := r.Mark()
		if m := r.Mark(); m == "" || m != before {
			t.Errorf("marks %q and %q", before, m)
		}
		for name, do := range map[string]func(){
			"a call":                   func() { newClient("c").calls(t, r, "x") },
			"a notification to it":     func() { _ = r.Peek().Forward(context.Background(), "notifications/x", nil) },
			"a notification of theirs": func() { say(`{"jsonrpc":"2.0","method":"notifications/y"}`) },
		} {
			do()
			synctest.Wait()
			if m := r.Mark(); m == before {
				t.Errorf("%s left no mark", name)
			} else {
				before = m
			}
		}
	})
}
