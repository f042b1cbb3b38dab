package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/wire"
)

const (
	// wakeEvery is how long a restored server may be silent before it is nudged.
	wakeEvery = 250 * time.Millisecond
	// maxNudges bounds how often that is done.
	maxNudges = 8
)

// A watchdog nudges a restored server that does not answer its first request. A
// server that was frozen while it waited for input may have lost the wake-up, and
// continues with the next bytes that it gets. A nil watchdog does nothing.
type watchdog struct {
	first sync.Once
	once  sync.Once
	heard chan struct{} // closed with the first message of the server
}

func (w *watchdog) hears() {
	if w != nil {
		w.once.Do(func() { close(w.heard) })
	}
}

// watch begins with the first request on the connection.
func (w *watchdog) watch(t *streamTransport) {
	if w == nil {
		return
	}
	w.first.Do(func() {
		t.mu.Lock()
		over := t.failed != nil
		if !over {
			t.reader.Add(1)
		}
		t.mu.Unlock()
		if !over {
			go w.nudge(t)
		}
	})
}

func (w *watchdog) nudge(t *streamTransport) {
	defer t.reader.Done()
	for range maxNudges {
		wait := time.NewTimer(wakeEvery)
		select {
		case <-wait.C:
		case <-w.heard:
			wait.Stop()
			return
		case <-t.ended:
			wait.Stop()
			return
		}
		t.c.log.Debug("restored server is silent and is nudged", "server", t.c.server)
		ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
		err := t.send(ctx, t.c.noop())
		cancel()
		if err != nil {
			return
		}
	}
}

// noop is a request that changes nothing, and whose answer is ignored.
func (c *Conn) noop() []byte {
	id := quoted(c.nextID())
	if !c.modern() {
		return wire.AppendRequest(nil, id, wire.MethodPing, nil, nil)
	}
	p, _ := wire.ScanParams(wire.MethodDiscover, nil)
	req := &Request{Method: wire.MethodDiscover, Params: p, Client: &Client{}}
	params, edits := c.modernize(req, nil, nil)
	return wire.AppendRequest(nil, id, wire.MethodDiscover, params, edits)
}
