package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A request for what is not there is answered with the same words whether a rule
// hides it or there is none. It is in the journal in both cases: a caller that
// guesses names could else tell the two apart by the numbers of its other calls. It
// counts toward the principal's rate as any call does. Why is for operators.

// An absence is a request for something that is not there for its principal.
type absence struct {
	server  string         // as the caller names it; empty for none
	entry   *catalog.Entry // of a server that is there, and hidden or hides it; nil for none
	session string         // that it was made in; empty for none
	method  string
	name    string // of the tool, prompt or resource
	why     string
	params  []byte // of a call of a tool in a session
	answer  string // what its caller is told
}

// absent writes an absence down, and returns the id of its call. It returns an error for a
// request that is one too many of its principal.
func (g *Gateway) absent(who identity.Principal, a absence, rated bool) (id string, err error) {
	req := &upstream.Request{Method: a.method, Name: a.name, Who: who.Name, Session: a.session, Run: g.runOf(who), Params: wire.Params{Raw: a.params}}
	if rated {
		if e := g.tooMany(who); e != nil {
			g.reg.Limited(a.server, req, e.Message)
			return req.Call, e
		}
	}
	if a.entry != nil {
		a.entry.Denied()
	}
	g.reg.Denied(a.server, req, a.why, a.answer)
	return req.Call, nil
}

// kindOf is what a request is about: a tool, a prompt or a resource.
func (x *exchange) kindOf() string {
	switch {
	case x.method == wire.MethodCallTool:
		return "tool"
	case x.params.TargetURI || x.method == wire.MethodSubscribe || x.method == wire.MethodUnsubscribe:
		return "resource"
	}
	return "prompt"
}

// hiddenServer is why a server is not there for a principal.
func hiddenServer(who identity.Principal, e *catalog.Entry) string {
	if l := who.Limit(); l != nil && l.Servers != nil && !slices.Contains(l.Servers, e.Base()) {
		return fmt.Sprintf("token %s of session %s does not reach server %s", l.Token, who.Session, e.Base())
	}
	return fmt.Sprintf("auth.rules give %q no server %s", who.Name, e.Base())
}

// missingServer is why a server is not there for any principal.
func missingServer(server string) string {
	if server == "" {
		return "the name has no server before it"
	}
	return fmt.Sprintf("there is no server %q", clip(server))
}

// deny writes down a request for something of a server that is kept from its
// principal, and returns the answer.
func (x *exchange) deny(e *catalog.Entry, name string, answer error) error {
	return x.away(absence{server: e.ID, entry: e, name: name, why: x.denied(e, name)}, answer)
}

// denied is which rule is missing.
func (x *exchange) denied(e *catalog.Entry, name string) string {
	if !x.who.MaySee(e.Base()) {
		return hiddenServer(x.who, e)
	}
	return fmt.Sprintf("auth.rules give %q no %s %s of server %s", x.who.Name, x.kindOf(), name, e.Base())
}

// may reports whether the rules give the principal something of a server.
func (x *exchange) may(e *catalog.Entry, name string) bool {
	switch base := e.Base(); x.kindOf() {
	case "tool":
		return x.who.MayCall(base, name)
	case "resource":
		return x.who.MayRead(base)
	default:
		return x.who.MayPrompt(base, name)
	}
}

// withheld does so for something that the config hides from all principals.
func (x *exchange) withheld(e *catalog.Entry, name string, answer error) error {
	why := fmt.Sprintf("the config of server %s hides its %s %s", e.Base(), x.kindOf(), name)
	return x.away(absence{server: e.ID, entry: e, name: name, why: why}, answer)
}

// unknown does so for a name of which no server was found: the server that it names
// may be hidden, or not be there.
func (x *exchange) unknown(t *table, name string, answer error) error {
	if !x.view.merged() {
		return x.noServer(t, x.view.server, name, answer)
	}
	if x.params.TargetURI || x.kindOf() == "resource" {
		server, own := "", name
		if rest, ok := strings.CutPrefix(name, uriScheme); ok {
			if before, after, found := strings.Cut(rest, "/"); found {
				server, own = before, after
			}
		}
		return x.noServer(t, server, own, answer)
	}
	server, own, found := strings.Cut(name, t.sep)
	if found {
		return x.noServer(t, server, own, answer)
	}
	if s := t.unprefixed(name); s != nil {
		return x.noServer(t, s.entry.ID, name, answer)
	}
	return x.noServer(t, "", name, answer)
}

// strays reports whether a name with a server before it was taken for one of the
// server whose names have none, which has no such thing: it is a name of a server that
// is not there, and must not be told apart from that of one that is hidden.
func (x *exchange) strays(ctx context.Context, t *table, s *shape, name, list string) bool {
	if s != t.bare || !x.view.merged() || !strings.Contains(name, t.sep) {
		return false
	}
	if named, _, _ := t.split(name); named == s && x.wide {
		return false // it has its own server before it
	}
	if own, ok := s.inside(name); ok && list == wire.MethodListTools {
		name = own
	}
	return !x.has(ctx, s, list, name)
}

// noServer does so for a server that is not there for the principal.
func (x *exchange) noServer(t *table, server, name string, answer error) error {
	a := absence{server: server, name: name, why: missingServer(server)}
	if s := t.shapes[server]; s != nil {
		if a.entry, a.why = s.entry, x.denied(s.entry, name); x.may(s.entry, name) {
			a.why = fmt.Sprintf("server %s has no %s of that name in this view", s.entry.Base(), x.kindOf())
		}
	}
	return x.away(a, answer)
}

// away completes an absence and returns the answer to its request.
func (x *exchange) away(a absence, answer error) error {
	a.session, a.method = x.sess.ID, x.method
	if x.method == wire.MethodCallTool {
		a.params, a.answer = x.params.Raw, answer.Error()
		if rpc := (*wire.Error)(nil); errors.As(answer, &rpc) {
			a.answer = rpc.Message
		}
	}
	id, err := x.g.absent(x.who, a, !x.inner)
	if x.call = id; err != nil {
		return upstream.NotSent(err)
	}
	return answer
}

// maxKnock is how much is read of a request to a view that is not there, to say what
// was asked for.
const maxKnock = 64 << 10

// knock writes down a request to the view of a server that is not there for its
// principal, and refuses it.
func (g *Gateway) knock(w http.ResponseWriter, r *http.Request, who identity.Principal, server, in string, e *catalog.Entry) {
	a := absence{server: server, entry: e, method: r.Header.Get(wire.HeaderMethod), name: r.Header.Get(wire.HeaderName), why: missingServer(server)}
	if e != nil {
		a.why = hiddenServer(who, e)
	}
	if s := g.reg.Get(in); s != nil && access.Uses(who, access.Thing{Owner: s.Owner, Session: in}) {
		a.session = in // nothing is written into the story of another principal's session
	}
	if a.method == "" {
		hurry(w)
		a.method, a.name = asked(r)
	}
	if _, err := g.absent(who, a, true); err != nil {
		refuseError(w, err)
		return
	}
	refuse(w, http.StatusNotFound, api.KindInvalid, "there is no server \""+server+"\" here; `tine servers` lists them")
}

// asked is the method of the message that a request brings, and the name in it;
// empty where it can't be read.
func asked(r *http.Request) (method, name string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxKnock))
	if err != nil {
		return "", ""
	}
	msg, err := wire.Scan(body)
	if err != nil {
		return "", ""
	}
	if p, err := wire.ScanParams(msg.Method, orEmpty(msg.Params)); err == nil {
		name = p.Name()
	}
	return msg.Method, name
}
