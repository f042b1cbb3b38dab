package upstream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// Nothing that is only passed on may change.
func TestRelaysRaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			params = `{ "z":1,"name":"srv__echo" ,"arguments":{"n":12345678901234567890,"f":1.0,"e":1e400,"s":"\u00e9\/","o":{"b":1,"a":2}},"x-new":[null] }`
			result = `{"z":[],"content":[{"type":"hologram","data":12345678901234567890}],"isError":true,"a":1.50,"_meta":{"k":"\u00e9"}}`
			fail   = `{"data":{"n":12345678901234567890},"message":"m\u00e9","code":-32002,"x":1}`
		)
		r := play(t, func(i *instance) {
			i.rope.legacy()
			m := i.rope.want(wire.MethodCallTool)
			if want := strings.Replace(params, "srv__echo", "echo", 1); m.params != want {
				t.Errorf("the server got\n%s\nwant\n%s", m.params, want)
			}
			i.rope.answer(m, "%s", result)
			m = i.rope.want(wire.MethodCallTool)
			i.rope.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.id, fail)
			m = i.rope.want("vendor/method")
			if m.params != `{}` {
				t.Errorf("no params came as %q", m.params)
			}
			i.rope.answer(m, `null`)
			i.rope.serve(func(message) {})
		})
		c := newClient("c")
		req := c.request(t, wire.MethodCallTool, params)
		req.Edits = []wire.Edit{{At: req.Params.Target, With: wire.Quote("echo")}}
		if got := outcome(r.Call(t.Context(), req)); got != result {
			t.Errorf("result\n%s\nwant\n%s", got, result)
		}
		if got := c.calls(t, r, "b"); got != "error:"+fail {
			t.Errorf("error\n%s\nwant\n%s", got, fail)
		}
		if got := c.does(t, r, "vendor/method", ""); got != "null" {
			t.Errorf("null result came as %q", got)
		}
	})
}

// Line breaks between tokens are legal JSON and would break a frame.
func TestRequestsFitALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) { i.rope.legacy(); i.rope.echo() })
		got := newClient("c").does(t, r, wire.MethodCallTool, "{\r\n\t\"name\": \"x\",\n\"arguments\": {\"s\": \"a\\nb\"}\n}")
		testkit.Has(t, "the result", got, `"s": "a\nb"`)
	})
}

func TestAnswersFindTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 1000
		r := play(t, func(i *instance) {
			i.rope.legacy()
			var all []message
			for range calls {
				all = append(all, i.rope.want(wire.MethodCallTool))
			}
			rand.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
			for _, m := range all {
				i.rope.answer(m, `{"for":%s}`, m.params)
			}
			i.rope.serve(func(message) {})
		})
		var wg sync.WaitGroup
		for n := range calls {
			wg.Go(func() {
				tool := fmt.Sprint("tool-", n)
				if got, want := newClient(fmt.Sprint(n%7)).calls(t, r, tool), fmt.Sprintf(`{"for":{"name":"%s"}}`, tool); got != want {
					t.Errorf("call of %s got %s", tool, got)
				}
			})
		}
		wg.Wait()
		if r.starts != 1 {
			t.Errorf("%d instances were started for calls at once", r.starts)
		}
	})
}

// An id says which connection it is of, so that the answer of an earlier one is
// never taken for one of this.
func TestLateAnswersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := map[string]bool{}
		var lost []string
		r := play(t, func(i *instance) {
			i.rope.serve(func(m message) {
				if m.id != "" {
					if ids[m.id] || m.id[0] != '"' {
						t.Errorf("id %s is no string or was sent before", m.id)
					}
					ids[m.id] = true
				}
				switch m.method {
				case wire.MethodDiscover:
					i.rope.refuse(m, -32601, "no")
				case wire.MethodInitialize:
					i.rope.answer(m, legacyHello)
				case wire.MethodCallTool:
					if i.n == 1 {
						lost = append(lost, m.id)
						i.end(errText("killed"))
						return
					}
					for _, id := range lost {
						i.rope.say(`{"jsonrpc":"2.0","id":%s,"result":{"late":true}}`, id)
					}
					for _, junk := range []string{
						`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`,
						`{"jsonrpc":"2.0","result":{"nobody":1}}`,
						`{"jsonrpc":"2.0","id":1,"result":{"numbered":true}}`,
						`{"jsonrpc":"2.0","id":"1","result":{"numbered":true}}`,
						`{"jsonrpc":"2.0","id":"","result":{}}`,
						`not json`, ``, `[]`, `{"jsonrpc":"2.0"}`,
					} {
						i.rope.say("%s", junk)
					}
					i.rope.answer(m, `{"right":true}`)
					i.rope.answer(m, `{"twice":true}`)
				}
			})
		})
		c := newClient("c")
		testkit.Has(t, "the lost call", c.calls(t, r, "x"), "lost: ", `server "srv"`)
		if got := c.calls(t, r, "x"); got != `{"right":true}` {
			t.Errorf("the call after got %s", got)
		}
		if got := c.calls(t, r, "x"); got != `{"right":true}` {
			t.Errorf("the one after that got %s", got)
		}
	})
}

func TestProgressComesWithTheClientsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := []string{`7`, `"abc"`, `12345678901234567890`, `"\u00e9"`, `7`, `""`}
		r := play(t, func(i *instance) {
			i.rope.legacy()
			sent := map[string]message{} // by our token
			for range tokens {
				m := i.rope.want(wire.MethodCallTool)
				sent[at(m.params, "_meta", "progressToken")] = m
			}
			if len(sent) != len(tokens) {
				t.Errorf("%d tokens for %d calls", len(sent), len(tokens))
			}
			i.rope.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":99}}`)
			i.rope.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"abc","progress":99}}`)
			i.rope.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":99}}`)
			i.rope.say(`{"jsonrpc":"2.0","method":"notifications/progress"}`)
			for token, m := range sent {
				i.rope.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"\u00e9","progressToken":%s,"progress":0.5,"for":%q,"big":12345678901234567890}}`, token, at(m.params, "name"))
			}
			for token, m := range sent {
				i.rope.answer(m, `{}`)
				i.rope.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, token)
			}
			m := i.rope.want(wire.MethodCallTool)
			if got := at(m.params, "_meta"); got != `{"k":1}` {
				t.Errorf("a call without a token was sent with _meta %s", got)
			}
			i.rope.answer(m, `{}`)
			i.rope.serve(func(message) {})
		})
		clients := make([]*client, len(tokens))
		var wg sync.WaitGroup
		for n, token := range tokens {
			clients[n] = newClient(fmt.Sprint(n))
			wg.Go(func() {
				clients[n].does(t, r, wire.MethodCallTool, fmt.Sprintf(`{"name":"t%d","_meta":{"progressToken":%s,"k":12345678901234567890}}`, n, token))
			})
		}
		wg.Wait()
		if got := newClient("z").does(t, r, wire.MethodCallTool, `{"name":"last","_meta":{"k":1}}`); got != `{}` {
			t.Errorf("got %s", got)
		}
		synctest.Wait()
		for n, token := range tokens {
			notes, _ := clients[n].got()
			want := fmt.Sprintf(`notifications/progress {"message":"\u00e9","progressToken":%s,"progress":0.5,"for":"\"t%d\"","big":12345678901234567890}`, token, n)
			if len(notes) != 1 || notes[0] != want {
				t.Errorf("client %d heard %q, want %s", n, notes, want)
			}
		}
	})
}

func TestCancelReachesTheServer(t *testing.T) {
	tests := []struct {
		name string
		end  func(cancel context.CancelCauseFunc)
		want string
	}{
		{"the client cancels", func(cancel context.CancelCauseFunc) { cancel(upstream.Cancelled()) }, "refused: "},
		{"the client is gone", func(cancel context.CancelCauseFunc) { cancel(nil) }, "refused: "},
		{"it took too long", func(context.CancelCauseFunc) { time.Sleep(2 * timeout) }, "timeout: "}, // in a bubble
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called, cancelled := make(chan message, 1), make(chan message, 1)
				r := play(t, func(i *instance) {
					i.rope.legacy()
					i.rope.serve(func(m message) {
						switch m.method {
						case wire.MethodCallTool:
							called <- m
						case wire.NoteCancelled:
							cancelled <- m
						case wire.MethodPing:
							i.rope.answer(m, `{}`)
						}
					})
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				out := make(chan string, 1)
				go func() {
					out <- outcome(r.Call(ctx, newClient("c").request(t, wire.MethodCallTool, `{"name":"x"}`)))
				}()
				call := <-called
				tt.end(cancel)
				got := <-out
				testkit.Has(t, "the error", got, tt.want)
				if note := <-cancelled; at(note.params, "requestId") != call.id {
					t.Errorf("cancelled %s, the call was %s", note.params, call.id)
				}
				if got := newClient("c").does(t, r, wire.MethodPing, ""); got != `{}` {
					t.Errorf("the next request got %s", got)
				}
			})
		})
	}
}

func TestServersThatBreak(t *testing.T) {
	t.Run("a message over the limit ends the one call it can be of", func(t *testing.T) {
		for _, era := range []string{"legacy", "modern"} {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, func(i *instance) {
					if era == "legacy" {
						i.rope.legacy()
					} else {
						i.rope.modern()
					}
					i.rope.serve(func(m message) {
						switch {
						case m.method == wire.MethodListen:
							i.rope.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.id)
						case m.method == wire.MethodCallTool && strings.Contains(m.params, "huge"):
							i.rope.huge(100 << 20)
						case m.id != "":
							i.rope.answer(m, `{"ok":true}`)
						}
					})
				})
				stop := r.Watch(&watcher{})
				defer stop()
				c := newClient("c")
				c.calls(t, r, "x")
				synctest.Wait()
				res, err := r.Call(t.Context(), c.request(t, wire.MethodCallTool, `{"name":"huge"}`))
				testkit.Has(t, era+" error", outcome(res, err), "infrastructure: ", "larger than the limit", "; limits.message can raise that")
				if !upstream.TooLarge(err) {
					t.Errorf("%v is not taken for a matter of size", err)
				}
				if got := c.calls(t, r, "x"); got != `{"ok":true}` {
					t.Errorf("the call after got %s", got)
				}
				if r.starts != 1 {
					t.Errorf("the server was started %d times", r.starts)
				}
			})
		}
	})
	t.Run("a call after the death is not lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) {
				i.rope.legacy()
				i.rope.serve(func(m message) {
					if i.n == 1 && m.method == wire.MethodCallTool {
						i.rope.hang() // its output ends first, it itself later
						return
					}
					i.rope.answer(m, `{"n":%d}`, i.n)
				})
			})
			c := newClient("c")
			testkit.Has(t, "the call that it died of", c.calls(t, r, "x"), "lost: ")
			// Nothing of this one was sent anywhere, so it is no loss.
			got := c.calls(t, r, "x")
			if got != `{"n":2}` {
				t.Errorf("the call after got %s", got)
			}
			if got := c.calls(t, r, "x"); got != `{"n":2}` {
				t.Errorf("the one after that got %s", got)
			}
		})
	})
	t.Run("many calls at the death", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) {
				i.rope.legacy()
				for range 50 {
					i.rope.want(wire.MethodCallTool)
				}
				i.end(errText("exit status 139"))
			})
			var wg sync.WaitGroup
			for n := range 50 {
				wg.Go(func() {
					testkit.Has(t, "the error", newClient(fmt.Sprint(n)).calls(t, r, "x"), "lost: ")
				})
			}
			wg.Wait()
			synctest.Wait()
			time.Sleep(time.Second)
			testkit.Has(t, "the reason", r.Status().Reason, "exit status 139")
		})
	})
	t.Run("garbage between answers is said", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) {
				i.rope.legacy()
				i.rope.serve(func(message) { i.rope.say("print('debug')") })
			})
			testkit.Has(t, "the error", newClient("c").calls(t, r, "x"), "timeout: ", "not JSON-RPC")
		})
	})
}

// at is the raw value at a path.
func at(doc string, path ...string) string {
	s, err := wire.Find([]byte(doc), path...)
	if err != nil {
		return "ERROR " + err.Error()
	}
	return string(s.Of([]byte(doc)))
}
