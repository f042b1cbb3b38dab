package upstream_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/wire"
)

// asked collects what a server was asked, but for handshakes.
type askedFor struct {
	mu  sync.Mutex
	all []string
}

func (a *askedFor) add(s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, s)
}

func (a *askedFor) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := strings.Join(a.all, " ")
	a.all = nil
	return s
}

func TestSubscriptionsOnALegacyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked askedFor
		var now *instance
		r := play(t, func(i *instance) {
			i.rope.legacy()
			now = i
			i.rope.serve(func(m message) {
				if m.id == "" {
					return
				}
				asked.add(strings.TrimPrefix(m.method, "resources/") + at(m.params, "uri"))
				if strings.Contains(m.params, "denied") {
					i.rope.refuse(m, -32602, "no such resource")
					return
				}
				i.rope.answer(m, `{}`)
			})
		})
		w := &watcher{}
		defer r.Watch(w)()
		ctx := t.Context()
		for _, uri := range []string{"a:1", "a:1", "b:2", "denied:3", "a:1"} {
			res, err := r.Subscribe(ctx, uri)
			if got := outcome(res, err); (got != `{}`) != (uri == "denied:3") {
				t.Errorf("Subscribe(%s) got %s", uri, got)
			}
		}
		if got := asked.take(); got != `subscribe"a:1" subscribe"b:2" subscribe"denied:3"` {
			t.Errorf("the server was asked %s", got)
		}
		now.rope.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}`)
		synctest.Wait()
		if got := strings.Join(w.heard(), "|"); got != `notifications/resources/updated {"uri":"a:1"}` {
			t.Errorf("heard %s", got)
		}
		// What was subscribed before a crash is subscribed after it, what was not is not.
		now.end(errText("killed"))
		time.Sleep(time.Minute)
		got := strings.Fields(asked.take())
		slices.Sort(got)
		if strings.Join(got, " ") != `subscribe"a:1" subscribe"b:2"` {
			t.Errorf("the next server was asked %s", got)
		}
		for range 2 {
			if res, err := r.Unsubscribe(ctx, "a:1"); outcome(res, err) != `{}` {
				t.Errorf("Unsubscribe got %s", outcome(res, err))
			}
		}
		if got := asked.take(); got != "" {
			t.Errorf("the server was asked %s while one still wants it", got)
		}
		if res, err := r.Unsubscribe(ctx, "a:1"); outcome(res, err) != `{}` {
			t.Errorf("Unsubscribe got %s", outcome(res, err))
		}
		if got := asked.take(); got != `unsubscribe"a:1"` {
			t.Errorf("the server was asked %s", got)
		}
		if res, err := r.Unsubscribe(ctx, "never:9"); outcome(res, err) != `{}` {
			t.Errorf("Unsubscribe got %s", outcome(res, err))
		}
		now.end(errText("killed"))
		time.Sleep(time.Minute)
		if got := asked.take(); got != `subscribe"b:2"` {
			t.Errorf("the third server was asked %s", got)
		}
	})
}

func TestListensToAModernServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked askedFor
		var mu sync.Mutex
		open := map[string]string{} // listen calls by id
		var now *instance
		r := play(t, func(i *instance) {
			mu.Lock()
			now = i
			clear(open)
			mu.Unlock()
			i.rope.modern()
			i.rope.serve(func(m message) {
				mu.Lock()
				defer mu.Unlock()
				switch m.method {
				case wire.MethodListen:
					filter := at(m.params, "notifications")
					open[m.id] = filter
					asked.add("listen" + filter)
					i.rope.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`, m.id, filter)
				case wire.NoteCancelled:
					id := at(m.params, "requestId")
					asked.add("cancel" + open[id])
					delete(open, id)
				default:
					if m.id != "" {
						i.rope.answer(m, `{"resultType":"complete"}`)
					}
				}
			})
		})
		newClient("c").calls(t, r, "x")
		synctest.Wait()
		if got := asked.take(); got != "" {
			t.Errorf("without a watcher: %s", got)
		}
		w := &watcher{}
		defer r.Watch(w)()
		defer r.Watch(&watcher{})()
		synctest.Wait()
		if got := asked.take(); got != `listen{"toolsListChanged":true}` {
			t.Errorf("with a watcher: %s", got)
		}
		if res, err := r.Subscribe(t.Context(), "a:1"); outcome(res, err) != `{}` {
			t.Errorf("Subscribe got %s", outcome(res, err))
		}
		synctest.Wait()
		// What is listened to already stays as it is.
		if got := asked.take(); got != `listen{"resourceSubscriptions":["a:1"]}` {
			t.Errorf("with a subscription: %s", got)
		}
		mu.Lock()
		for id := range open {
			now.rope.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"uri":"a:1"}}`, id)
			now.rope.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, id)
		}
		if len(open) != 2 {
			t.Errorf("%d streams are open: %v", len(open), open)
		}
		mu.Unlock()
		synctest.Wait()
		if got := strings.Join(w.heard(), "|"); !strings.Contains(got, `"uri":"a:1"`) || !strings.Contains(got, wire.NoteToolsChanged) {
			t.Errorf("heard %s", got)
		}
		// A crash, and all is as before.
		now.end(errText("killed"))
		time.Sleep(time.Minute)
		both := func(got string) bool {
			return strings.Contains(got, `listen{"toolsListChanged":true}`) && strings.Contains(got, `listen{"resourceSubscriptions":["a:1"]}`)
		}
		if got := asked.take(); !both(got) {
			t.Errorf("after a crash: %s", got)
		}
		mu.Lock()
		if len(open) != 2 {
			t.Errorf("after a crash %d streams are open: %v", len(open), open)
		}
		mu.Unlock()
		// The server ends the stream in an orderly way; it is opened again.
		mu.Lock()
		for id := range open {
			now.rope.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, id)
			delete(open, id)
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		if got := asked.take(); !both(got) {
			t.Errorf("after the server closed the stream: %s", got)
		}
		if res, err := r.Unsubscribe(t.Context(), "a:1"); outcome(res, err) != `{}` {
			t.Errorf("Unsubscribe got %s", outcome(res, err))
		}
		synctest.Wait()
		// Nothing is taken back: some servers would forget the rest with it.
		if got := asked.take(); got != "" {
			t.Errorf("without the subscription: %s", got)
		}
	})
	t.Run("one that can't be listened to is not asked for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int32
			r := play(t, func(i *instance) {
				i.rope.modern()
				i.rope.serve(func(m message) {
					if m.method == wire.MethodListen {
						asked.Add(1)
						i.rope.refuse(m, wire.CodeMethodNotFound, "Method not found")
						return
					}
					if m.id != "" {
						i.rope.answer(m, `{}`)
					}
				})
			})
			defer r.Watch(&watcher{})()
			newClient("c").calls(t, r, "x")
			time.Sleep(time.Hour)
			if n := asked.Load(); n == 0 || n > 10 {
				t.Errorf("asked %d times in an hour", n)
			}
		})
	})
	t.Run("one that acknowledges nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) {
				i.rope.modern()
				i.rope.serve(func(m message) {
					if m.id != "" && m.method != wire.MethodListen {
						i.rope.answer(m, `{}`)
					}
				})
			})
			defer r.Watch(&watcher{})()
			if res, err := r.Subscribe(t.Context(), "a:1"); outcome(res, err) != `{}` {
				t.Errorf("Subscribe got %s", outcome(res, err))
			}
		})
	})
}

func TestLogLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked askedFor
		var now *instance
		r := play(t, func(i *instance) {
			i.rope.legacy()
			now = i
			i.rope.serve(func(m message) {
				if m.method == wire.MethodSetLevel {
					asked.add(fmt.Sprint(i.n, at(m.params, "level")))
				}
				if m.id != "" {
					i.rope.answer(m, `{}`)
				}
			})
		})
		c := newClient("c")
		r.SetLevel("warning") // before it runs
		c.calls(t, r, "x")
		synctest.Wait()
		r.SetLevel("error")
		r.SetLevel("warning")
		r.SetLevel("debug")
		r.SetLevel("info")
		synctest.Wait()
		if got := asked.take(); got != `1"warning" 1"debug"` {
			t.Errorf("levels %s", got)
		}
		now.end(errText("killed"))
		time.Sleep(time.Minute)
		c.calls(t, r, "x")
		synctest.Wait()
		if got := asked.take(); got != `2"debug"` {
			t.Errorf("levels after a restart %s", got)
		}
	})
	t.Run("a modern server has no such request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, modernServer(t, func(i *instance, m message) {
				if m.method == wire.MethodSetLevel {
					t.Errorf("got %s", m.raw)
				}
				i.rope.answer(m, `{}`)
			}))
			r.SetLevel("debug")
			newClient("c").calls(t, r, "x")
			r.SetLevel("debug")
			synctest.Wait()
		})
	})
}
