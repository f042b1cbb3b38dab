package upstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// watcher is a client that hears what belongs to no call.
type watcher struct {
	reply *upstream.Reply // nil when it can't answer

	mu    sync.Mutex
	notes []string
	asked []string
}

func (w *watcher) Note(_ upstream.Origin, method string, params []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, strings.TrimSpace(method+" "+string(params)))
}

func (w *watcher) Ask(_ context.Context, _ upstream.Origin, method string, params []byte) (upstream.Reply, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, method)
	if w.reply == nil {
		return upstream.Reply{}, false
	}
	return *w.reply, true
}

func (w *watcher) heard() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.notes...)
}

func (w *watcher) questions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.asked...)
}

const (
	elicit = `{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":"sure?","big":12345678901234567890}}`
	sample = `{"jsonrpc":"2.0","id":%s,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`
)

// asking is a server that puts a request to its client once it has a number of
// calls, says what it was told, and then answers them all.
func asking(calls int, request string, told chan<- message) func(*instance) {
	return func(i *instance) {
		i.rope.legacy()
		var all []message
		i.rope.serve(func(m message) {
			switch {
			case m.method == wire.MethodCallTool:
				if all = append(all, m); len(all) == calls {
					i.rope.say(request, `"s-1"`)
				}
			case m.method == "" && m.id == `"s-1"`:
				told <- m
				for _, c := range all {
					i.rope.answer(c, `{}`)
				}
				all = nil
			}
		})
	}
}

func TestServersRequestGoesToWhoseCallItIs(t *testing.T) {
	t.Run("one client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			told := make(chan message, 1)
			r := play(t, asking(2, elicit, told))
			c := newClient("c").answers(`{"action":"accept","content":{"n":12345678901234567890}}`)
			one, two := c.later(t, r, "a"), c.later(t, r, "b")
			if m := <-told; m.result != `{"action":"accept","content":{"n":12345678901234567890}}` {
				t.Errorf("the server was told %s", m.raw)
			}
			<-one
			<-two
			if _, asked := c.got(); len(asked) != 1 || asked[0] != `elicitation/create {"message":"sure?","big":12345678901234567890}` {
				t.Errorf("the client was asked %q", asked)
			}
		})
	})
	t.Run("a client's error goes back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			told := make(chan message, 1)
			r := play(t, asking(1, sample, told))
			c := newClient("c")
			c.ask = func(context.Context, string, string) upstream.Reply {
				return upstream.Reply{Error: []byte(`{"code":-1,"message":"user rejected","data":{"n":12345678901234567890}}`)}
			}
			done := c.later(t, r, "a")
			if m := <-told; m.err != `{"code":-1,"message":"user rejected","data":{"n":12345678901234567890}}` {
				t.Errorf("the server was told %s", m.raw)
			}
			<-done
		})
	})
	for _, tt := range []struct {
		name    string
		clients []string
		change  func(*upstream.Options)
		request string
		want    []string
	}{
		{"two clients, elicitation", []string{"a", "b"}, func(*upstream.Options) {}, elicit, []string{`"result":{"action":"decline"}`}},
		{"two clients, sampling", []string{"a", "b"}, func(*upstream.Options) {}, sample, []string{`"error":{`, "it is not known"}},
		{"two clients, shared", []string{"a", "b"}, shared, sample, []string{`"error":{`, "shared", "scope"}},
		{"one client, shared", []string{"a"}, shared, sample, []string{`"error":{`, "shared", "scope"}},
		{"one client, shared, elicitation", []string{"a"}, shared, elicit, []string{`"result":{"action":"decline"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan message, 1)
				r := play(t, asking(len(tt.clients), tt.request, told), tt.change)
				// Both could answer as watchers too; neither may be guessed.
				var clients []*client
				var watchers []*watcher
				var done []<-chan string
				for _, key := range tt.clients {
					w := &watcher{reply: &upstream.Reply{Result: []byte(`{"wrong":true}`)}}
					defer r.Watch(w)()
					watchers = append(watchers, w)
					c := newClient(key).answers(`{"wrong":true}`)
					clients = append(clients, c)
					done = append(done, c.later(t, r, "x"))
				}
				testkit.Has(t, "what the server was told", (<-told).raw, tt.want...)
				for n := range clients {
					<-done[n]
					if _, asked := clients[n].got(); len(asked) > 0 || len(watchers[n].questions()) > 0 {
						t.Errorf("client %s was asked %q %q", tt.clients[n], asked, watchers[n].questions())
					}
				}
			})
		})
	}
	t.Run("outside of any call", func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			change func(*upstream.Options)
			watch  []*watcher
			want   string
		}{
			{"no client", eager, nil, `"error":{`},
			{"one who can", eager, []*watcher{{reply: &upstream.Reply{Result: []byte(`{"roots":[]}`)}}}, `"result":{"roots":[]}`},
			{"one who can't", eager, []*watcher{{}}, `"error":{`},
			{"two", eager, []*watcher{{reply: &upstream.Reply{Result: []byte(`{}`)}}, {reply: &upstream.Reply{Result: []byte(`{}`)}}}, `"error":{`},
			{"one, shared", func(o *upstream.Options) { eager(o); shared(o) }, []*watcher{{reply: &upstream.Reply{Result: []byte(`{}`)}}}, `"error":{`},
		} {
			synctest.Test(t, func(t *testing.T) {
				told, asks := make(chan message, 1), make(chan struct{})
				r := play(t, func(i *instance) {
					i.rope.legacy()
					<-asks
					i.rope.say(`{"jsonrpc":"2.0","id":77,"method":"roots/list"}`)
					told <- i.rope.want("")
					i.rope.serve(func(message) {})
				}, tt.change)
				for _, w := range tt.watch {
					defer r.Watch(w)()
				}
				close(asks)
				m := <-told
				testkit.Has(t, tt.name, m.raw, tt.want)
				if m.id != "77" {
					t.Errorf("%s: the answer's id is %s", tt.name, m.id)
				}
			})
		}
	})
}

func TestPingIsAnsweredHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan message, 1)
		play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
			told <- i.rope.want("")
			i.rope.serve(func(message) {})
		}, eager)
		if m := <-told; m.id != `"p"` || m.result != `{}` {
			t.Errorf("ping was answered with %s", m.raw)
		}
	})
}

func TestServerTakesItsRequestBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.legacy()
			call := i.rope.want(wire.MethodCallTool)
			i.rope.say(elicit, `5`)
			synctest.Wait()
			i.rope.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
			synctest.Wait()
			if sent := i.rope.quiet(); sent != "" {
				t.Errorf("a request that was taken back got %s", sent)
			}
			i.rope.answer(call, `{"ok":true}`)
			i.rope.serve(func(message) {})
		})
		c := newClient("c")
		gone := make(chan struct{})
		c.ask = func(ctx context.Context, _, _ string) upstream.Reply {
			<-ctx.Done()
			close(gone)
			return upstream.Reply{Result: []byte(`{"action":"accept"}`)}
		}
		if got := c.calls(t, r, "x"); got != `{"ok":true}` {
			t.Errorf("got %s", got)
		}
		<-gone
	})
}

// A server that floods its client with requests gets them refused, and one that
// uses an id twice must not keep the connection from closing.
func TestServersThatAskTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood = 1000
		answers := make(chan message, flood)
		r := play(t, func(i *instance) {
			i.rope.legacy()
			call := i.rope.want(wire.MethodCallTool)
			for n := range flood {
				i.rope.say(sample, fmt.Sprint(n))
			}
			i.rope.serve(func(m message) {
				answers <- m
				if len(answers) == flood-256 {
					i.rope.answer(call, `{}`)
				}
			})
		})
		c := newClient("c")
		c.ask = func(ctx context.Context, _, _ string) upstream.Reply {
			<-ctx.Done()
			return upstream.Reply{Result: []byte(`{}`)}
		}
		if got := c.calls(t, r, "x"); got != `{}` {
			t.Errorf("got %s", got)
		}
		for range flood - 256 {
			if m := <-answers; !strings.Contains(m.err, "too many") {
				t.Errorf("one too many was told %s", m.raw)
				break
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		first := make(chan struct{}, 1)
		r := play(t, func(i *instance) {
			i.rope.legacy()
			call := i.rope.want(wire.MethodCallTool)
			i.rope.say(elicit, `1`)
			i.rope.say(elicit, `1`)
			i.rope.want("")
			i.rope.answer(call, `{}`)
			i.rope.serve(func(message) {})
		})
		c := newClient("c")
		first <- struct{}{}
		c.ask = func(ctx context.Context, _, _ string) upstream.Reply {
			select {
			case <-first:
			case <-ctx.Done():
			}
			return upstream.Reply{Result: []byte(`{"action":"cancel"}`)}
		}
		if got := c.calls(t, r, "x"); got != `{}` {
			t.Errorf("got %s", got)
		}
		r.Close() // a question without an end would hang here
	})
}

func TestNotesOutsideOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := make(chan struct{})
		r := play(t, func(i *instance) {
			i.rope.legacy()
			<-say
			for _, n := range []string{
				`"notifications/tools/list_changed"`,
				`"notifications/resources/updated","params":{"uri":"a:b","x":12345678901234567890}`,
				`"notifications/message","params":{"level":"info","data":"x"}`,
				`"notifications/vendor/thing","params":{"a":1}`,
			} {
				i.rope.say(`{"jsonrpc":"2.0","method":%s}`, n)
			}
			i.rope.serve(func(message) {})
		}, eager)
		w1, w2, gone := &watcher{}, &watcher{}, &watcher{}
		defer r.Watch(w1)()
		defer r.Watch(w2)()
		r.Watch(gone)()
		close(say)
		synctest.Wait()
		want := `notifications/tools/list_changed|notifications/resources/updated {"uri":"a:b","x":12345678901234567890}|notifications/message {"level":"info","data":"x"}|notifications/vendor/thing {"a":1}`
		for _, w := range []*watcher{w1, w2} {
			if got := strings.Join(w.heard(), "|"); got != want {
				t.Errorf("heard %s\nwant %s", got, want)
			}
		}
		if got := gone.heard(); len(got) > 0 {
			t.Errorf("one that stopped watching heard %q", got)
		}
	})
	t.Run("what a shared server logs is shown to no other client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) {
				i.rope.legacy()
				m := i.rope.want(wire.MethodCallTool)
				i.rope.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret of a"}}`)
				i.rope.say(`{"jsonrpc":"2.0","method":"notifications/vendor/thing","params":{"of":"a"}}`)
				i.rope.say(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
				i.rope.answer(m, `{}`)
				i.rope.serve(func(message) {})
			}, shared)
			// Also if only one client watches, which need not be the caller.
			b := &watcher{}
			defer r.Watch(b)()
			newClient("a").calls(t, r, "x")
			synctest.Wait()
			if got := b.heard(); len(got) != 1 || got[0] != "notifications/prompts/list_changed" {
				t.Errorf("heard %q", got)
			}
		})
	})
	t.Run("what a server logs in a call goes to its client", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) {
				i.rope.legacy()
				m := i.rope.want(wire.MethodCallTool)
				i.rope.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
				i.rope.answer(m, `{}`)
				i.rope.serve(func(message) {})
			})
			w := &watcher{}
			defer r.Watch(w)()
			c := newClient("a")
			c.calls(t, r, "x")
			synctest.Wait()
			if notes, _ := c.got(); len(notes) != 1 || len(w.heard()) > 0 {
				t.Errorf("the caller heard %q, a watcher %q", notes, w.heard())
			}
		})
	})
}
