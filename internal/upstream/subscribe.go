package upstream

import (
	"context"
	"maps"
	"slices"

	"github.com/tine-mcp/tine/internal/wire"
)

// Subscription makes the request that begins or ends a subscription to a resource,
// by method. Upstream.Call takes it like any other, and counts: several clients may
// subscribe to the same resource, the server hears only of the last one that
// leaves, and a restarted server is asked again.
func Subscription(method, uri string) *Request {
	raw := append(wire.AppendQuote([]byte(`{"uri":`), uri), '}')
	p, _ := wire.ScanParams(method, raw) // it was just written
	return &Request{Method: method, Params: p, Name: uri, Client: &Client{}}
}

// Subscribe asks for updates of a resource, which reach the watchers, for no client
// in particular. It lasts over restarts of the server, until as many Unsubscribes.
func (u *Upstream) Subscribe(ctx context.Context, uri string) (*Result, error) {
	return u.Call(ctx, Subscription(wire.MethodSubscribe, uri))
}

// Unsubscribe undoes one Subscribe.
func (u *Upstream) Unsubscribe(ctx context.Context, uri string) (*Result, error) {
	return u.Call(ctx, Subscription(wire.MethodUnsubscribe, uri))
}

// subscribe handles a subscription behind the policies.
func (u *Upstream) subscribe(ctx context.Context, conn *Conn, req *Request) (*Result, error) {
	res, err := conn.subscribe(ctx, req)
	if err == nil && res.Error == nil {
		u.mu.Lock()
		u.subs[req.Name]++
		u.mu.Unlock()
	}
	return res, err
}

// unwanted removes one subscription, which no policy can refuse, and reports
// whether the server has to be told.
func (u *Upstream) unwanted(uri string) bool {
	u.mu.Lock()
	if u.subs[uri]--; u.subs[uri] <= 0 {
		delete(u.subs, uri)
	}
	conn := u.conn
	u.mu.Unlock()
	return conn != nil && !conn.ended() && conn.listen.forget(uri)
}

// subscribed lists the resources with subscribers.
func (l *listener) subscribed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.subs))
}

// resubscribe asks a server again for resources: a new one, or one that forgot the
// session. The connection knows them already, so that a client that leaves in the
// meantime is counted.
func (c *Conn) resubscribe(ctx context.Context, uris []string) {
	l := &c.listen
	if len(uris) == 0 {
		return
	}
	if c.modern() {
		l.restart(c)
		return
	}
	l.watch(c)
	for _, uri := range uris {
		_, err := c.exchange(ctx, Subscription(wire.MethodSubscribe, uri))
		if err == nil && !l.wants(uri) {
			_, err = c.exchange(ctx, Subscription(wire.MethodUnsubscribe, uri))
		}
		if err != nil {
			c.log.Debug("resource not subscribed again", "server", c.server, "err", err)
		}
	}
}

// subscribe asks for updates of a resource; several may ask for the same one.
func (c *Conn) subscribe(ctx context.Context, req *Request) (*Result, error) {
	l, uri := &c.listen, req.Name
	l.mu.Lock()
	if l.subs == nil {
		l.subs = make(map[string]int)
	}
	l.subs[uri]++
	first := l.subs[uri] == 1
	l.mu.Unlock()
	if !first {
		return &Result{Result: []byte("{}")}, nil
	}
	if c.modern() {
		if ready := l.restart(c); ready != nil {
			select {
			case <-ready:
			case <-ctx.Done():
			}
		}
		return &Result{Result: []byte("{}")}, nil
	}
	l.watch(c)
	res, err := c.exchange(ctx, req)
	if err != nil || res.Error != nil {
		l.forget(uri)
	}
	return res, err
}

// unsubscribe tells the server that a resource has no subscriber any more, unless
// it got one in the meantime.
func (c *Conn) unsubscribe(ctx context.Context, req *Request) (*Result, error) {
	l := &c.listen
	if l.wants(req.Name) {
		return &Result{Result: []byte("{}")}, nil
	}
	if c.modern() {
		l.restart(c)
		return &Result{Result: []byte("{}")}, nil
	}
	return c.exchange(ctx, req)
}

// wants reports whether a resource has a subscriber.
func (l *listener) wants(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.subs[uri] > 0
}

// forget takes one off and reports whether it was the last.
func (l *listener) forget(uri string) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, ok := l.subs[uri]
	switch {
	case !ok:
		return false
	case n > 1:
		l.subs[uri] = n - 1
		return false
	}
	delete(l.subs, uri)
	return true
}
