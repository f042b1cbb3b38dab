package upstream_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/upstream"
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
		if e := r.NotYet(); !strings.Contains(e.Message, "did not start within 10s") {
			t.Errorf("a list says %v", e)
		}
		r.Kick()
		synctest.Wait()
		want("while it is tried again", 0, time.Minute, upstream.RetryWait)
		want("when that takes longer", time.Hour, time.Minute, 0)
		if e := r.NotYet(); !strings.Contains(e.Message, "did not start within 10s") {
			t.Errorf("while it is tried again a list says %v", e)
		}
		close(let)
		if _, err := r.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := r.NotYet(); !strings.Contains(e.Message, "has not answered yet") {
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
