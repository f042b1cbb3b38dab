package gateway

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// owner finds the server of a resource in the merged view. A URI without its
// server, as servers write them into texts, is taken when exactly one server
// has it.
func (x *exchange) owner(ctx context.Context, t *table, uri string) (*shape, string, error) {
	if s, own, ok := t.inURI(uri); ok && s.listed && x.who.MayRead(s.entry.Base()) {
		return s, own, nil
	}
	var found []*shape
	for _, method := range []string{wire.MethodListResources, wire.MethodListTemplates} {
		parts, _ := x.listAll(ctx, t, method)
		for _, p := range parts {
			for _, item := range p.items {
				if matches(method, item, uri) {
					found = append(found, p.shape)
					break
				}
			}
		}
		if len(found) > 0 {
			break
		}
	}
	switch len(found) {
	case 0:
		return nil, "", x.unknown(t, uri, unknownResource(uri))
	case 1:
		return found[0], uri, nil
	}
	names := make([]string, len(found))
	for i, s := range found {
		names[i] = outURI(s.entry.ID, uri)
	}
	return nil, "", invalidParams(fmt.Sprintf("several servers have %s; ask for one of %s", uri, strings.Join(names, ", ")))
}

func unknownResource(uri string) error { return invalidParams("Resource not found: " + uri) }

func matches(method string, item []byte, uri string) bool {
	if method == wire.MethodListResources {
		return wire.FindString(item, "uri") == uri
	}
	template := wire.FindString(item, "uriTemplate")
	if template == uri {
		return true
	}
	return template != "" && templatePattern(template).MatchString(uri)
}

var templateVar = regexp.MustCompile(`\{[^}]*\}`)

// templatePattern makes a URI template a pattern, loosely: enough to tell
// whose a URI is.
func templatePattern(template string) *regexp.Regexp {
	parts := templateVar.Split(template, -1)
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}

// subscribe starts or ends a legacy client's interest in a resource.
func (x *exchange) subscribe(ctx context.Context) (*upstream.Result, error) {
	uri := x.params.Name()
	if x.client.Modern {
		return nil, methodNotFound(x.method)
	}
	if uri == "" {
		return nil, invalidParams("params.uri must name a resource")
	}
	if x.conn == nil {
		return nil, invalidParams("a client without a connection can't subscribe; initialize first")
	}
	up, key, err := x.resource(ctx, uri)
	if err != nil {
		return nil, err
	}
	own := key.uri
	if x.method == wire.MethodUnsubscribe {
		if !x.conn.unsubscribed(key) {
			return emptyResult(), nil
		}
		return up.Call(ctx, x.subscription(wire.MethodUnsubscribe, own))
	}
	if !x.conn.subscribed(key) {
		return emptyResult(), nil
	}
	res, err := up.Call(ctx, x.subscription(wire.MethodSubscribe, own))
	if err != nil || res.Error != nil {
		x.conn.unsubscribed(key)
	}
	return res, err
}

// subscription is the request to begin or end one, for the exchange's principal.
func (x *exchange) subscription(method, uri string) *upstream.Request {
	req := upstream.Subscription(method, uri)
	req.Client = &upstream.Client{Key: x.client.Key}
	req.Who, req.Session, req.Run = x.who.Name, x.sess.ID, x.g.runOf(x.who)
	return req
}

// resource finds the server of a resource in the exchange's view, and what the
// server calls it.
func (x *exchange) resource(ctx context.Context, uri string) (*upstream.Upstream, subKey, error) {
	t := x.table()
	s, own := x.seen(t, x.view.server), uri
	if x.view.merged() {
		var err error
		if s, own, err = x.owner(ctx, t, uri); err != nil {
			return nil, subKey{}, err
		}
	}
	if s == nil {
		return nil, subKey{}, x.unknown(t, uri, control.NoServer(x.view.server))
	}
	if !x.who.MayRead(s.entry.Base()) {
		return nil, subKey{}, x.deny(s.entry, own, unknownResource(uri))
	}
	up, _, err := x.upstream(s.entry.ID)
	return up, subKey{s.entry.ID, own}, err
}

// subKey is a resource of a server.
type subKey struct{ server, uri string }
