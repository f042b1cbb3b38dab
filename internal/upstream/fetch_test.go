package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// fetchingDriver is one whose programs need a package.
type fetchingDriver struct {
	fakeDriver
	r       *rig
	there   chan struct{} // closed when the package is
	fail    error
	going   atomic.Bool
	most    time.Duration
	refetch atomic.Int64
	more    atomic.Int64 // bytes that came since
}

func (d *fetchingDriver) Fetch(ctx context.Context, _ driver.Spec, most time.Duration) error {
	d.r.happened("fetch")
	d.going.Store(true)
	defer d.going.Store(false)
	d.most = most
	select {
	case <-d.there:
		return d.fail
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *fetchingDriver) Fetching(driver.Spec) *api.Fetch {
	if !d.going.Load() {
		return nil
	}
	return &api.Fetch{Package: "pkg", Bytes: 34e6 + d.more.Load(), Total: 80e6}
}

func (d *fetchingDriver) Refetch(driver.Spec) { d.refetch.Add(1) }

func playFetch(t *testing.T, script func(*instance), change ...func(*upstream.Options)) (*rig, *fetchingDriver) {
	r := &rig{t: t}
	d := &fetchingDriver{r: r, there: make(chan struct{})}
	d.start = func(context.Context, driver.Spec) (driver.Instance, error) {
		r.happened("start")
		return r.newInstance(script), nil
	}
	o := r.options()
	o.Driver, o.ConnectTimeout, o.FetchTime = d, 10*time.Second, func() time.Duration { return 7 * time.Minute }
	for _, c := range change {
		c(&o)
	}
	r.Upstream = upstream.New(o)
	t.Cleanup(r.Close)
	return r, d
}

// A fetch takes as long as it takes, before room is taken; the start has its time after
// it, and who does not wait is told.
func TestFetchIsNotTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := playFetch(t, echoing, func(o *upstream.Options) {
			o.Room = func(context.Context) (func(), error) { return func() {}, nil }
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Conn(ctx)
		var ours *api.Error
		if !errors.As(err, &ours) || ours.Kind != api.KindTimeout || !ours.Retryable || ours.Message != `server "srv": is still fetching, 34 MB of 80; the fetch of package "pkg" goes on` {
			t.Errorf("who left got %v", err)
		}
		if e := r.NotYet(wire.MethodListTools); e.Message != `server "srv": is fetching package "pkg"; the list is announced again when it answers` {
			t.Errorf("a list says %v", e)
		}
		time.Sleep(5 * time.Minute)
		if st := r.Status(); st.State != api.StateFetching || st.Fetch.Package != "pkg" || r.history() != "fetch" {
			t.Errorf("it is %+v after %s", st, r.history())
		}
		close(d.there)
		newClient("c").calls(t, r, "x")
		if st := r.Status(); st.State != api.StateReady || st.Fetch != nil || d.most != 7*time.Minute || d.refetch.Load() != 0 {
			t.Errorf("it is %+v, fetched within %s", st, d.most)
		}
		if e := r.NotYet(wire.MethodListTools); !strings.Contains(e.Message, "has not answered yet") {
			t.Errorf("a list says %v", e)
		}
	})
}

// The client of a call that waits for a fetch hears how far it is, in numbers that grow and
// are below those of the server.
func TestFetchIsToldAsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := playFetch(t, echoing)
		c, over := newClient("c"), make(chan string)
		go func() {
			over <- c.does(t, r, wire.MethodCallTool, `{"name":"x","_meta":{"progressToken":"mine"}}`)
		}()
		time.Sleep(10 * time.Second)
		d.more.Store(6e6)
		time.Sleep(10 * time.Second)
		silent := newClient("d")
		go silent.calls(t, r, "x")
		close(d.there)
		testkit.Has(t, "the call", <-over, "x")
		notes, _ := c.got()
		want := `notifications/progress {"progressToken":"mine","progress":-1,"message":"fetching, 34 MB of 80"}|notifications/progress {"progressToken":"mine","progress":-0.5,"message":"fetching, 40 MB of 80"}`
		if got := strings.Join(notes, "|"); got != want {
			t.Errorf("it heard %s", got)
		}
		synctest.Wait()
		if notes, _ := silent.got(); len(notes) > 0 {
			t.Errorf("who gave no token heard %q", notes)
		}
	})
}

// A start that takes too long with its packages there may have fetched by itself.
func TestSlowStartFetchesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := playFetch(t, func(i *instance) { <-i.done })
		close(d.there)
		_, err := r.Conn(t.Context())
		if err == nil || err.Error() != `server "srv": did not start within 10s; servers.srv.connect_timeout allows more` || d.refetch.Load() != 1 {
			t.Errorf("got %v, asked to fetch again %d times", err, d.refetch.Load())
		}
	})
}

func TestFetchFails(t *testing.T) {
	for name, final := range map[string]bool{"may be tried again": false, "another try fails in the same way": true} {
		synctest.Test(t, func(t *testing.T) {
			r, d := playFetch(t, echoing)
			d.fail = errors.New(`fetch package "pkg": npx failed; ` + name)
			if final {
				d.fail = driver.Final(d.fail)
			}
			close(d.there)
			_, err := r.Conn(t.Context())
			var ours *api.Error
			if !errors.As(err, &ours) || ours.Kind != api.KindInfrastructure || ours.Retryable == final || ours.Final != final ||
				ours.Message != `server "srv": fetch package "pkg": npx failed; `+name || r.history() != "fetch" {
				t.Errorf("got %+v after %s", err, r.history())
			}
		})
	}
}

// What is adopted needs no package; what is started in its place does.
func TestAdoptionDoesNotFetch(t *testing.T) {
	a := upstream.Adoption{Handle: driver.Handle{Driver: "fake"}, Hello: json.RawMessage(`{"version":"2025-11-25"}`)}
	for want, adopt := range map[string]bool{"dial": true, "drop fetch start": false} {
		synctest.Test(t, func(t *testing.T) {
			r, d := playFetch(t, echoing, eager, func(o *upstream.Options) {
				o.Adopt = &a
				if d := o.Driver.(*fetchingDriver); adopt {
					d.adopt = func(context.Context, driver.Handle) (driver.Instance, error) {
						return d.r.newInstance(func(i *instance) { i.rope.echo() }), nil
					}
				}
			})
			close(d.there)
			if _, err := r.Conn(t.Context()); err != nil || !strings.HasPrefix(r.history(), want) {
				t.Errorf("got %v after %s, want %s", err, r.history(), want)
			}
		})
	}
}

func TestCloseWhileFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := playFetch(t, echoing)
		r.Kick()
		synctest.Wait()
		r.Close()
		if r.history() != "fetch" {
			t.Errorf("history: %s", r.history())
		}
	})
}

// The time of a list goes on when the fetch is over.
func TestWithinAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d := playFetch(t, func(i *instance) { <-i.done }, func(o *upstream.Options) { o.ConnectTimeout = time.Hour })
		r.Kick()
		synctest.Wait()
		ctx, cancel := r.Within(t.Context(), 10*time.Second)
		defer cancel()
		time.Sleep(5 * time.Minute)
		if ctx.Err() != nil {
			t.Error("it ended while something is fetched")
		}
		close(d.there)
		time.Sleep(11 * time.Second)
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("after it: %v", context.Cause(ctx))
		}
		early, cancel := r.Within(t.Context(), 10*time.Second)
		cancel()
		if !errors.Is(early.Err(), context.Canceled) {
			t.Errorf("cancelled: %v", early.Err())
		}
	})
}
