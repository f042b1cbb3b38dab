package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

func echoing(i *instance) {
	i.rope.legacy()
	i.rope.echo()
}

func TestStartsWhenNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, echoing)
		synctest.Wait()
		if st := r.Status(); st.State != api.StateIdle || st.Instance || r.starts != 0 || r.Peek() != nil {
			t.Errorf("before use: %+v, %d starts", st, r.starts)
		}
		if logs, err := r.Logs(100); logs != nil || err != nil {
			t.Errorf("logs of nothing: %v, %v", logs, err)
		}
		newClient("c").calls(t, r, "x")
		st := r.Status()
		if st.State != api.StateReady || !st.Instance || st.Restarts != 0 || r.Peek() == nil {
			t.Errorf("after use: %+v", st)
		}
		if string(st.Hello.Info) != `{"name":"old","version":"1"}` || !st.Hello.Can("tools", "listChanged") || st.Hello.Can("prompts") || st.Hello.Can("tools", "x") {
			t.Errorf("hello %s %s", st.Hello.Info, st.Hello.Capabilities)
		}
		logs, err := r.Logs(100)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(logs); string(b) != "stderr of an instance" {
			t.Errorf("logs %q", b)
		}
		if r.Server() != "srv" || r.Name() != "srv" || r.Session() != "" {
			t.Errorf("it is %q %q %q", r.Server(), r.Name(), r.Session())
		}
		// The handle is kept before the instance is used, and the hello with it.
		if h := r.history(); h != "start keep dial keep+hello" {
			t.Errorf("history: %s", h)
		}
		r.Close()
		if h := r.history(); h != "start keep dial keep+hello stop drop" {
			t.Errorf("history: %s", h)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := play(t, echoing, eager)
		synctest.Wait()
		if st := r.Status(); st.State != api.StateReady {
			t.Errorf("an eager one is %+v", st)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := play(t, echoing)
		r.Kick()
		r.Kick()
		synctest.Wait()
		if st := r.Status(); st.State != api.StateReady || r.starts != 1 {
			t.Errorf("after Kick: %+v, %d starts", st, r.starts)
		}
	})
}

func TestCallersDoNotWaitForASlowStartForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			time.Sleep(10 * time.Second)
			echoing(i)
		}, func(o *upstream.Options) { o.ConnectTimeout = time.Minute })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := newClient("c")
		testkit.Has(t, "the error", outcome(r.Call(ctx, c.request(t, wire.MethodCallTool, `{"name":"x"}`))), "timeout: ", "starting")
		testkit.Has(t, "the call of one who waits", c.calls(t, r, "x"), `"name":"x"`)
		if r.starts != 1 {
			t.Errorf("%d starts", r.starts)
		}
	})
}

func TestStartsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		starts := 0
		r := &rig{t: t}
		o := r.options()
		o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
			starts++
			if broken {
				return nil, errors.New(`server "srv": command "npx" not found on PATH; install Node.js or set servers.srv.command`)
			}
			return r.newInstance(echoing), nil
		}}
		r.Upstream = upstream.New(o)
		t.Cleanup(r.Close)
		c := newClient("c")
		for range 20 {
			got := c.calls(t, r, "x")
			testkit.Has(t, "the error", got, "infrastructure: ", `command "npx" not found`)
			if strings.Count(got, `server "srv"`) != 1 {
				t.Errorf("the error names its server %d times: %s", strings.Count(got, `server "srv"`), got)
			}
		}
		if starts >= 20 || starts < 2 {
			t.Errorf("20 calls at once made %d starts", starts)
		}
		st := r.Status()
		if st.State != api.StateFailed || st.Instance || !strings.HasPrefix(st.Reason, `command "npx"`) {
			t.Errorf("status %+v", st)
		}
		broken = false
		time.Sleep(time.Hour)
		testkit.Has(t, "the call when it is mended", c.calls(t, r, "x"), `"name":"x"`)
		if st := r.Status(); st.State != api.StateReady || st.Reason != "" {
			t.Errorf("status %+v", st)
		}
	})
	t.Run("for good", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{t: t}
			o := r.options()
			var fails error
			o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) { return nil, fails }}
			r.Upstream = upstream.New(o)
			t.Cleanup(r.Close)
			for final, err := range map[bool]error{
				true:  fmt.Errorf("server %q: start: %w", "srv", driver.Final(errors.New("no such image"))),
				false: errors.New("no such image"),
			} {
				time.Sleep(time.Hour)
				fails = err
				for range 20 { // also of calls that come while the next start is waited for
					_, err := r.Conn(t.Context())
					var ours *api.Error
					if !errors.As(err, &ours) || ours.Retryable == final || final && ours.RetryAfter != 0 || !strings.Contains(ours.Message, "no such image") {
						t.Fatalf("a start that fails for good (%v) fails with %+v, %v", final, ours, err)
					}
				}
			}
		})
	})
	t.Run("the handle can't be kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, at := range []string{"keep", "keep+hello"} {
				r := play(t, echoing, func(o *upstream.Options) {
					keep := o.Keep
					o.Keep = func(h driver.Handle, hello json.RawMessage) error {
						_ = keep(h, hello)
						if (hello != nil) == (at == "keep+hello") {
							return errors.New("disk full")
						}
						return nil
					}
				})
				testkit.Has(t, at, newClient("c").calls(t, r, "x"), "infrastructure: ", "disk full")
				if h := r.history(); !strings.HasSuffix(h, "stop drop") || at == "keep" && strings.Contains(h, "dial") {
					t.Errorf("%s fails: %s", at, h)
				}
			}
		})
	})
	t.Run("it can't be dialled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{t: t}
			o := r.options()
			o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
				r.happened("start")
				i := r.newInstance(func(*instance) {})
				i.link = func() (driver.Link, error) { return driver.Link{}, errors.New("no such pipe") }
				return i, nil
			}}
			r.Upstream = upstream.New(o)
			t.Cleanup(r.Close)
			testkit.Has(t, "the error", newClient("c").calls(t, r, "x"), "infrastructure: ", "no such pipe")
			if h := r.history(); h != "start keep dial stop drop" {
				t.Errorf("history: %s", h)
			}
		})
	})
}

func TestRestartsAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) {
			i.rope.legacy()
			i.rope.serve(func(m message) {
				switch {
				case strings.Contains(m.params, "crash"):
					i.end(errText("exit status 2"))
				case m.id != "":
					i.rope.answer(m, `{"n":%d}`, i.n)
				}
			})
		})
		c := newClient("c")
		for n := 1; n <= 8; n++ {
			if got, want := c.calls(t, r, "x"), fmt.Sprintf(`{"n":%d}`, n); got != want {
				t.Fatalf("call %d got %s", n, got)
			}
			testkit.Has(t, "the crash", c.calls(t, r, "crash"), "lost: ")
			time.Sleep(time.Minute)
			if st := r.Status(); st.State != api.StateFailed || st.Reason != "exit status 2" || st.Restarts != n || st.Instance {
				t.Errorf("after crash %d: %+v", n, st)
			}
		}
		// Each was stopped and forgotten before the next one was started.
		one := "start keep dial keep+hello stop drop"
		if h := r.history(); h != strings.TrimSpace(strings.Repeat(one+" ", 8)) {
			t.Errorf("history: %s", h)
		}
	})
	t.Run("not before the old one is gone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// What is left of a dead instance takes its time to end. It has the same
			// folder and handle as its successor.
			r := play(t, func(i *instance) {
				i.rope.legacy()
				if i.n == 1 {
					i.rope.want(wire.MethodCallTool)
					i.end(errText("segfault"))
					time.Sleep(20 * time.Second) // Stop waits for the script
					i.r.happened("gone")
					return
				}
				i.rope.echo()
			}, func(o *upstream.Options) { o.CallTimeout, o.ConnectTimeout = time.Minute, time.Minute })
			c := newClient("c")
			testkit.Has(t, "the crash", c.calls(t, r, "x"), "lost: ")
			testkit.Has(t, "the call after", c.calls(t, r, "x"), `"name":"x"`)
			if h := r.history(); h != "start keep dial keep+hello stop gone drop start keep dial keep+hello" {
				t.Errorf("history: %s", h)
			}
		})
	})
	t.Run("without a call while a client watches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			crash := make(chan struct{})
			r := play(t, func(i *instance) {
				i.rope.legacy()
				if i.n == 1 {
					<-crash
					i.end(errText("killed"))
					return
				}
				i.rope.echo()
			})
			w := &watcher{}
			defer r.Watch(w)()
			newClient("c").does(t, r, "x/y", "")
			if got := w.heard(); len(got) > 0 {
				t.Errorf("heard %q before anything happened", got)
			}
			close(crash)
			time.Sleep(time.Minute)
			if st := r.Status(); st.State != api.StateReady || r.starts != 2 || st.Restarts != 1 {
				t.Errorf("%+v after %d starts", st, r.starts)
			}
			if got := strings.Join(w.heard(), " "); got != wire.NoteToolsChanged+" "+wire.NotePromptsChanged+" "+wire.NoteResourcesChanged {
				t.Errorf("heard %q of the restart", got)
			}
		})
	})
	t.Run("not without a call or a watcher", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) {
				i.rope.legacy()
				i.rope.want("x/y")
				i.end(nil)
			})
			newClient("c").does(t, r, "x/y", "")
			time.Sleep(time.Hour)
			if r.starts != 1 {
				t.Errorf("%d starts", r.starts)
			}
		})
	})
	t.Run("an eager one that never comes up is tried again and again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) { i.end(errText("exit status 1")) }, eager)
			time.Sleep(10 * time.Minute)
			r.mu.Lock()
			n := r.starts
			r.mu.Unlock()
			if n < 10 || n > 200 {
				t.Errorf("%d starts in ten minutes", n)
			}
		})
	})
}
