package gateway

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/wire"
)

// What a principal may not call it does not see, and its call is answered as
// if the thing were not there.

// seen is a server's shape, if there is one and the principal may see it.
func (x *exchange) seen(t *table, server string) *shape {
	s := t.shapes[server]
	if s == nil || !x.who.MaySee(s.entry.Base()) {
		return nil
	}
	return s
}

// upstream is the session's hold on a server, for the exchange's principal.
// Where each principal has its own login, a session is its owner's alone: who
// may look after others' sessions does not act in their name.
func (x *exchange) upstream(id string) (*upstream.Upstream, *catalog.Entry, error) {
	up, e, err := x.sess.Upstream(id)
	if err == nil && e.Credential == config.CredentialPerPrincipal && x.sess.Owner != x.who.Name {
		return nil, e, &api.Error{
			Kind: api.KindRefused, Server: id,
			Message: fmt.Sprintf("server %q: this session shows it the login of another principal; use a session of yours, and run: tine login %s", id, e.Base()),
		}
	}
	return up, e, err
}

// sharesIdentity reports whether a server sees the same caller in the principal
// and in others.
func (x *exchange) sharesIdentity(s *shape) bool {
	return !x.who.Anonymous() && s.entry.Scope == config.ScopeShared && s.entry.Credential != config.CredentialPerPrincipal
}

// hides reports whether some tools of a server are kept from the principal.
func (x *exchange) hides(s *shape) bool {
	return !s.entry.ShowsAll() || !x.who.Unlimited(s.entry.Base())
}

var isError = []byte(`"isError"`)

// exists reports whether a server has the tool that was just called. Only an
// error can say that it has not, and then the server's list tells; without the
// list the server's word stands.
func (x *exchange) exists(ctx context.Context, s *shape, own string, res *upstream.Result) bool {
	if res.Error == nil && !bytes.Contains(res.Result, isError) {
		return true
	}
	return x.has(ctx, s, wire.MethodListTools, own)
}

// has reports whether something is in a list of a server's. Without the list it
// may be.
func (x *exchange) has(ctx context.Context, s *shape, method, name string) bool {
	names, ok := x.namesIn(ctx, s, method)
	return !ok || slices.Contains(names, name)
}

// known reports whether the list that is kept of a server has a tool.
func (x *exchange) known(s *shape, tool string) bool {
	items, _ := x.sess.Known(s.entry, x.who.Name).List(wire.MethodListTools)
	return slices.ContainsFunc(items, func(item []byte) bool { return wire.FindString(item, "name") == tool })
}

// namesIn are the names in a list of a server's; false where the list can't be had.
func (x *exchange) namesIn(ctx context.Context, s *shape, method string) ([]string, bool) {
	up, e, err := x.upstream(s.entry.ID)
	if err != nil {
		return nil, false
	}
	items, err := x.g.fetches.start(x, up, e, method).wait(ctx, x.sess, e.ID, e.ConnectTimeout)
	if err != nil {
		return nil, false
	}
	names := make([]string, len(items))
	for i, it := range items {
		names[i] = wire.FindString(it, "name")
	}
	return names, true
}

// maxWords bounds what is repeated of a server's words.
const maxWords = 1000

// mistyped is the answer of a server. Where that says that it has no such tool, and its list says so too, the answer has the name as the client
// sent it and the one that may be meant. The server is asked first: its list may have
// changed.
func (x *exchange) mistyped(ctx context.Context, t *table, s *shape, name, own string, res *upstream.Result) (*upstream.Result, error) {
	_, words := record.Outcome(ctx, res, nil)
	if !strings.Contains(words, own) {
		return res, nil // it speaks of something else, and its list need not be asked for
	}
	names, ok := x.namesIn(ctx, s, wire.MethodListTools)
	if !ok || slices.Contains(names, own) {
		return res, nil
	}
	message := "Unknown tool: " + name
	if near := config.Nearest(own, names); near != "" {
		if near, ok = s.outside(near); ok && x.view.merged() {
			near = t.name(s, near)
		}
		message += " (did you mean " + near + "?)"
	}
	message += fmt.Sprintf("; server %q says: %s", s.entry.ID, strings.ToValidUTF8(words[:min(len(words), maxWords)], ""))
	if res.Error == nil {
		return nil, invalidParams(message)
	}
	at, err := wire.Find(res.Error, "message")
	if err != nil || !at.Ok() {
		return res, nil
	}
	out := *res
	out.Error = wire.AppendSpliced(nil, res.Error, []wire.Edit{{At: at, With: wire.Quote(message)}})
	return &out, nil
}

// mayList reports whether a principal may know what a server has of the kind that
// a list or a notification is about.
func mayList(who identity.Principal, server, method string) bool {
	switch method {
	case wire.MethodListPrompts, wire.NotePromptsChanged:
		some, _ := who.Prompts(server)
		return some
	case wire.MethodListResources, wire.MethodListTemplates, wire.NoteResourcesChanged, wire.NoteResourceUpdated:
		return who.MayRead(server)
	}
	return who.MaySee(server)
}
