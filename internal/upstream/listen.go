package upstream

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

// listener receives what a server sends outside of calls: on the GET stream of a
// legacy HTTP server, through subscriptions/listen on a modern one. Legacy streams
// carry it anyway.
type listener struct {
	mu     sync.Mutex
	on     bool
	closed bool
	subs   map[string]int // resource URIs, with the number of subscribers
	stop   context.CancelFunc
	// opened is what a stream listens to: a URI each, and, empty, the lists.
	opened  map[string]bool
	streams context.Context
	waits   map[string]chan struct{} // listen calls not acknowledged yet, by id
	// opening is closed when the server has answered the GET; nil if no call need
	// wait for that.
	opening atomic.Pointer[chan struct{}]
	wg      sync.WaitGroup
}

// openWait is how long a call waits for the GET stream of a legacy server: a server
// that sends its headers only with its first message must not delay calls.
const openWait = time.Second

// await gives the GET stream of a legacy server time to open before a call: requests
// that the server makes during the call may come there, and are lost if it is not
// open.
func (l *listener) await(ctx context.Context) {
	opening := l.opening.Load()
	if opening == nil {
		return
	}
	wait := time.NewTimer(openWait)
	defer wait.Stop()
	select {
	case <-*opening:
	case <-wait.C:
	case <-ctx.Done():
		return
	}
	l.opening.CompareAndSwap(opening, nil)
}

// watch starts listening. Once on, it stays on for the connection's life.
func (l *listener) watch(c *Conn) {
	l.mu.Lock()
	was := l.on
	l.on = true
	l.mu.Unlock()
	if !was {
		l.restart(c)
	}
}

// restart listens anew: after the set of resources changed, or the session did. The
// new stream is open before the old one is closed, so that no message is lost
// between them.
func (l *listener) restart(c *Conn) (acked <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.on && len(l.subs) == 0 {
		return nil
	}
	if _, stream := c.t.(*streamTransport); stream && c.modern() {
		return l.extend(c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	old := l.stop
	l.stop = cancel
	ready := make(chan struct{})
	l.wg.Add(1)
	if !c.modern() {
		if old != nil {
			old()
		}
		l.opening.Store(&ready)
		go func() {
			defer l.wg.Done()
			defer telemetry.Contain(c.log, telemetry.InUpstream, c.server, c.fail)
			opened := sync.OnceFunc(func() { close(ready) })
			defer opened()
			c.t.standalone(ctx, opened)
		}()
		return ready
	}
	filter := l.lists(c)
	if len(l.subs) > 0 {
		uris := make([]string, 0, len(l.subs))
		for uri := range l.subs {
			uris = append(uris, uri)
		}
		filter["resourceSubscriptions"] = uris
	}
	go func() {
		defer l.wg.Done()
		defer telemetry.Contain(c.log, telemetry.InUpstream, c.server, c.fail)
		if old != nil {
			// Also if this stream ended before it began: no other one has it.
			defer old()
		}
		if len(filter) == 0 {
			close(ready)
			<-ctx.Done()
			return
		}
		l.modern(ctx, c, filter, ready, old)
	}()
	return ready
}

// lists is the filter for changes of lists. l.mu is held.
func (l *listener) lists(c *Conn) map[string]any {
	filter := map[string]any{}
	for _, f := range []struct{ capability, key string }{
		{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
	} {
		if l.on && c.hello.Load().Can(f.capability, "listChanged") {
			filter[f.key] = true
		}
	}
	return filter
}

// extend listens on a stream to resources that it does not cover yet, and never
// unsubscribes: some servers forget all subscriptions of a stream when one of them
// ends. Updates without a subscriber are dropped here. l.mu is held.
func (l *listener) extend(c *Conn) (acked <-chan struct{}) {
	if l.stop == nil {
		l.opened = make(map[string]bool)
		l.streams, l.stop = context.WithCancel(context.Background())
	}
	ctx := l.streams
	open := func(what string, filter map[string]any) {
		if len(filter) == 0 || l.opened[what] {
			return
		}
		l.opened[what] = true
		ready := make(chan struct{})
		acked = ready
		l.wg.Go(func() {
			defer telemetry.Contain(c.log, telemetry.InUpstream, c.server, c.fail)
			l.modern(ctx, c, filter, ready, nil)
		})
	}
	open("", l.lists(c))
	for uri := range l.subs {
		open(uri, map[string]any{"resourceSubscriptions": []string{uri}})
	}
	return acked
}

// modern keeps one subscriptions/listen open.
func (l *listener) modern(ctx context.Context, c *Conn, filter map[string]any, ready chan struct{}, old context.CancelFunc) {
	defer func() {
		if ready != nil {
			close(ready)
		}
	}()
	body, err := json.Marshal(map[string]any{"notifications": filter})
	if err != nil {
		return
	}
	wait := time.Second
	for first := true; ctx.Err() == nil; first = false {
		p, _ := wire.ScanParams(wire.MethodListen, body)
		req := &Request{Method: wire.MethodListen, Params: p, Client: &Client{}}
		k := &call{id: c.nextID(), req: req, own: true}
		params, edits := c.modernize(req, body, nil)
		acked := make(chan struct{})
		l.mu.Lock()
		if l.waits == nil {
			l.waits = make(map[string]chan struct{})
		}
		l.waits[k.id] = acked
		l.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			select {
			case <-acked:
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
			}
			if !first {
				c.events.Note(Origin{}, "", nil) // messages in between were missed
			}
			if old != nil {
				old()
				old = nil
			}
			if ready != nil {
				close(ready)
				ready = nil
			}
		}()
		started := time.Now()
		msg, err := c.t.roundTrip(ctx, k, wire.AppendRequest(nil, quoted(k.id), req.Method, params, edits))
		<-done
		l.mu.Lock()
		delete(l.waits, k.id)
		l.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		if msg.Error != nil && wire.ParseError(msg.Error).Code == wire.CodeMethodNotFound {
			return // it says nothing outside of calls
		}
		c.events.Note(Origin{}, "", nil)
		if err == nil && msg.Error == nil || time.Since(started) > time.Minute {
			wait = time.Second
		}
		select {
		case <-ctx.Done():
		case <-c.t.done():
			return
		case <-time.After(wait):
		}
		wait = min(wait*2, time.Minute)
	}
}

// acknowledged notes that a listen call was accepted.
func (l *listener) acknowledged(params []byte) {
	at, _ := wire.Find(params, "_meta", wire.MetaSubscription)
	id, _ := wire.Unquote(at.Of(params))
	l.mu.Lock()
	defer l.mu.Unlock()
	if ch := l.waits[id]; ch != nil {
		close(ch)
		delete(l.waits, id)
	}
}

func (l *listener) close() {
	l.mu.Lock()
	l.closed = true
	if l.stop != nil {
		l.stop()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
