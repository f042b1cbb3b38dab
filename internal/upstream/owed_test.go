package upstream_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// carriesMemory makes the driver one whose instances are what servers remember.
func carriesMemory(o *upstream.Options) { o.Driver.(*fakeDriver).memory = true }

// One call hears that a memory is lost, whatever it sees of the end: the driver may
// know of it only after the pipe has broken.
func TestALostMemoryIsToldOnce(t *testing.T) {
	const knows = 300 * time.Millisecond // when the driver does
	lost := fmt.Errorf("it was killed, its memory is lost: %w", driver.ErrLost)
	for _, tt := range []struct {
		name string
		ends func(i *instance) // after the handshake
	}{
		{"while nobody called", func(i *instance) { i.end(lost) }},
		{"before it was sent", func(i *instance) {
			close(i.rope.deaf)
			time.Sleep(knows)
			i.end(lost)
		}},
		{"under way, known at once", func(i *instance) {
			i.rope.want(wire.MethodCallTool)
			i.end(lost)
		}},
		{"under way, known later", func(i *instance) {
			i.rope.want(wire.MethodCallTool)
			i.rope.hang()
			time.Sleep(knows)
			i.end(lost)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, func(i *instance) {
					i.rope.legacy()
					if i.n == 1 {
						tt.ends(i)
						return
					}
					i.rope.serve(func(m message) { i.rope.answer(m, `{"n":%d}`, i.n) })
				}, eager, carriesMemory)
				time.Sleep(knows / 2)
				c := newClient("c")
				wantHas(t, "the first call", c.calls(t, r, "x"), string(api.KindLost), "its memory is lost")
				wantHas(t, "the next call", c.calls(t, r, "x"), `{"n":2}`)
				r.Close()
			})
		})
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
