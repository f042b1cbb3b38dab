package upstream_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

func TestClose(t *testing.T) {
	t.Run("twice, and by many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, echoing)
			c := newClient("c")
			c.calls(t, r, "x")
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(r.Close)
			}
			wg.Wait()
			r.Close()
			if h := r.history(); strings.Count(h, "stop") != 1 || strings.Count(h, "drop") != 1 {
				t.Errorf("history: %s", h)
			}
			testkit.Has(t, "a call after", c.calls(t, r, "x"), "refused: ", "removed or disabled")
			if _, err := r.Call(t.Context(), c.request(t, wire.MethodCallTool, `{"name":"x"}`)); !upstream.IsClosed(err) {
				t.Errorf("IsClosed(%v) is false", err)
			}
			r.Kick()
			synctest.Wait()
			if r.starts != 1 {
				t.Error("Kick after Close started another")
			}
			if _, err := r.Subscribe(t.Context(), "a:b"); err == nil {
				t.Error("Subscribe after Close passed")
			}
		})
	})
	t.Run("before use", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, echoing)
			r.Close()
			if r.starts != 0 {
				t.Error("Close started one")
			}
		})
	})
	t.Run("ends calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) { i.rope.legacy(); i.rope.serve(func(message) {}) })
			err := make(chan error, 1)
			req := newClient("c").request(t, wire.MethodCallTool, `{"name":"x"}`)
			go func() {
				_, e := r.Call(context.Background(), req)
				err <- e
			}()
			synctest.Wait()
			r.Close()
			// It was sent, so it must not be taken for one that may go elsewhere.
			if e := <-err; !strings.HasPrefix(outcome(nil, e), "lost: ") || upstream.IsClosed(e) {
				t.Errorf("the call got %v", e)
			}
		})
	})
	t.Run("ends a start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) { i.rope.serve(func(message) {}) })
			out := newClient("c").later(t, r, "x")
			synctest.Wait()
			r.Close()
			if got := <-out; strings.HasPrefix(got, "{") {
				t.Errorf("got %s", got)
			}
			if h := r.history(); h != "start keep dial stop drop" {
				t.Errorf("history: %s", h)
			}
		})
	})
	t.Run("ends the wait for the next try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, func(i *instance) { i.end(errText("exit status 1")) }, eager)
			synctest.Wait()
			out := newClient("c").later(t, r, "x")
			synctest.Wait()
			r.Close()
			if got := <-out; strings.HasPrefix(got, "{") {
				t.Errorf("got %s", got)
			}
			time.Sleep(time.Hour)
			if r.starts > 2 {
				t.Errorf("%d starts", r.starts)
			}
		})
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		r := play(t, func(i *instance) {
			i.rope.legacy()
			m := i.rope.want(wire.MethodCallTool)
			<-finish
			i.rope.answer(m, `{"done":true}`)
			i.rope.serve(func(message) {})
		})
		out := newClient("c").later(t, r, "x")
		synctest.Wait()
		drained := make(chan struct{})
		go func() { r.Drain(t.Context(), ""); close(drained) }()
		time.Sleep(time.Hour / 360)
		select {
		case <-drained:
			t.Error("Drain did not wait for the call")
		default:
		}
		close(finish)
		if got := <-out; got != `{"done":true}` {
			t.Errorf("the call got %s", got)
		}
		<-drained
		if h := r.history(); !strings.HasSuffix(h, "stop drop") {
			t.Errorf("history: %s", h)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := play(t, func(i *instance) { i.rope.legacy(); i.rope.serve(func(message) {}) })
		out := newClient("c").later(t, r, "x")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.Drain(ctx, "")
		testkit.Has(t, "the call that lasted", <-out, "lost: ")
	})
}
