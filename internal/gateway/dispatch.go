package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/wire"
)

// An action is one operation of an API. The table of them is all there is:
// requests are dispatched through it, and the OpenAPI document is made of it.
type action struct {
	method  string
	pattern string // below the API's prefix; {name} stands for one segment, {name...} for the rest
	name    string // unique: the document's operationId
	role    string // the least that may use it
	bound   bool   // a session's token may too, for its own session
	right   string // that a further token of a session needs, or access.Freely; without it such tokens are refused
	empty   bool   // the body may be left out
	upload  bool   // the body is a file, which the handler reads; its input is the query
	keyed   bool   // it takes an Idempotency-Key
	heavy   bool   // it is much work, and counts as a call until it is answered
	summary string
	operation
}

// An operation is what a route does, and the types it does it with.
type operation struct {
	in      reflect.Type // the query of GET, DELETE and uploads, the body of others; none for neither
	answers []content
	serve   func(g *Gateway, a *ask, query url.Values, of *action) (any, error)
}

// A content is what an answer may be.
type content struct {
	media  string
	of     reflect.Type // one line of it, for lines; nil for bytes
	status int          // zero for 200
}

// none is the input or the answer where there is none.
type none struct{}

// contents is implemented by answers that are not JSON of their own type.
type contents interface{ contents() []content }

// selfWritten is implemented by answers that are not to be encoded as JSON.
type selfWritten interface {
	write(a *ask) error
}

// An ask is one request to one of the gateway's APIs.
type ask struct {
	w    http.ResponseWriter
	r    *http.Request
	who  identity.Principal
	args map[string]string // of the pattern
	// counted is set where the request has a place among the calls, which it must
	// give back when it is answered.
	counted bool
	// conn is the client whose call this is part of; nil for none.
	conn *client
}

func (a *ask) ctx() context.Context { return a.r.Context() }

// op makes an operation of a handler. The types are the handler's own, so that
// what is documented is what is read and answered.
func op[In, Out any](handle func(*Gateway, *ask, In) (Out, error)) operation {
	o := operation{in: reflect.TypeFor[In]()}
	if c, ok := any(*new(Out)).(contents); ok {
		o.answers = c.contents()
	} else if out := reflect.TypeFor[Out](); out != reflect.TypeFor[none]() {
		o.answers = []content{{media: mediaJSON, of: out}}
	}
	o.serve = func(g *Gateway, a *ask, query url.Values, rt *action) (any, error) {
		var in In
		var err error
		if rt.hasBody() {
			if err = checkQuery(query, nil); err == nil {
				err = g.decode(a.w, a.r, &in, rt.empty)
			}
		} else {
			err = readQuery(query, &in)
		}
		if err != nil {
			return nil, err
		}
		return handle(g, a, in)
	}
	return o
}

const (
	mediaJSON  = "application/json"
	mediaLines = "application/x-ndjson"
	mediaBytes = "application/octet-stream"
)

// restMark ends a parameter of a pattern that stands for all segments that are left, also
// for none. Another parameter comes before it.
const restMark = "...}"

// hasBody reports whether the input is a JSON body.
func (rt *action) hasBody() bool {
	return rt.in != reflect.TypeFor[none]() && !rt.upload && rt.method != http.MethodGet && rt.method != http.MethodDelete
}

// match reports whether a path is the route's, and what stands in it.
func (rt *action) match(segments []string) (map[string]string, bool) {
	var args map[string]string
	n := 0
	for want := range strings.SplitSeq(rt.pattern[1:], "/") {
		if rest, ok := strings.CutSuffix(want, restMark); ok {
			args[rest[1:]] = strings.Join(segments[min(n, len(segments)):], "/")
			return args, true
		}
		if n == len(segments) {
			return nil, false
		}
		have := segments[n]
		n++
		if want[0] != '{' {
			if want != have {
				return nil, false
			}
			continue
		}
		if have == "" {
			return nil, false
		}
		if args == nil {
			args = make(map[string]string, 2)
		}
		args[want[1:len(want)-1]] = have
	}
	return args, n == len(segments)
}

// find picks the route of a request. When the path is one but not with this
// method, allowed has the methods.
func find(routes []action, method string, segments []string) (rt *action, args map[string]string, allowed []string) {
	for i := range routes {
		args, ok := routes[i].match(segments)
		if !ok {
			continue
		}
		if routes[i].method == method {
			return &routes[i], args, nil
		}
		if !slices.Contains(allowed, routes[i].method) {
			allowed = append(allowed, routes[i].method)
		}
	}
	return nil, nil, allowed
}

// serveActions answers one of the gateway's APIs. Handlers return an error, and
// it is written here.
func (g *Gateway) serveActions(w http.ResponseWriter, r *http.Request, who identity.Principal, t *actions) {
	if id := r.Header.Get(wire.HeaderTineCall); id != "" {
		r = r.WithContext(session.FromCall(r.Context(), id))
	}
	a := &ask{w: w, r: r, who: who}
	defer func() { // what is answered in pieces is made while it is written
		if a.counted {
			g.leave(who, 1)
		}
	}()
	v, err := g.control(a, t)
	if err == nil {
		if self, ok := v.(selfWritten); ok {
			err = self.write(a)
			v = nil
		}
	}
	switch {
	case errors.Is(err, errAnswered):
	case err != nil:
		refuseError(w, g.clean(who, err))
	case v == none{}:
		w.WriteHeader(http.StatusNoContent)
	case v != nil:
		writeJSON(w, http.StatusOK, v)
	}
}

// errAnswered is the error of a handler that has written its answer itself.
var errAnswered = errors.New("answered already")

func (g *Gateway) control(a *ask, t *actions) (any, error) {
	segments, err := split(strings.TrimPrefix(a.r.URL.EscapedPath(), t.prefix))
	if err != nil {
		return nil, err
	}
	rt, args, allowed := find(t.all, a.r.Method, segments)
	if rt == nil {
		if len(allowed) > 0 {
			slices.Sort(allowed)
			a.w.Header().Set("Allow", strings.Join(allowed, ", "))
			return nil, &api.Error{
				Kind: api.KindInvalid, Status: http.StatusMethodNotAllowed,
				Message: "there is no " + a.r.Method + " " + a.r.URL.Path + "; it has " + strings.Join(allowed, ", "),
			}
		}
		return nil, &api.Error{
			Kind: api.KindInvalid, Status: http.StatusNotFound,
			Message: "there is no " + a.r.Method + " " + a.r.URL.Path + "; " + t.prefix + "/openapi.json lists what there is",
		}
	}
	a.args = args
	if err := rt.admits(a.who); err != nil {
		return nil, err
	}
	if ref, ok := args["session"]; ok {
		if args["session"], err = g.services.Sessions.ID(a.who, ref); err != nil {
			return nil, err
		}
	}
	query, err := url.ParseQuery(a.r.URL.RawQuery)
	if err != nil {
		return nil, invalid("the query can't be read: %v", err)
	}
	// A search by label may look at many that don't have it.
	if rt.heavy || query.Has("label") {
		if e := g.enter(a.who, 1); e != nil {
			return nil, e
		}
		a.counted = true
	}
	return rt.serve(g, a, query, rt)
}

// admits refuses who may not use the route at all.
func (rt *action) admits(who identity.Principal) error {
	if who.Session != "" && !rt.bound {
		return &api.Error{
			Kind: api.KindRefused, Status: http.StatusForbidden,
			Message: "the token of session " + who.Session + " is for what happens in that session, and not for this; its owner can do it",
		}
	}
	if err := access.Allowed(who, rt.right); err != nil {
		return err
	}
	return access.Need(who, rt.role)
}

// split takes an escaped path apart.
func split(path string) ([]string, error) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return nil, invalid("the path can't be read: %v", err)
		}
		segments[i] = plain
	}
	return segments, nil
}

// decode reads a JSON body strictly. All of it is read before any of it is looked
// at: a caller that sends too much is told that, and not that its beginning is
// wrong.
func (g *Gateway) decode(w http.ResponseWriter, r *http.Request, v any, empty bool) error {
	limit := g.edge.Load().body
	if r.ContentLength > limit {
		return bodyTooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return unreadable(err, limit)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err = dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); more == nil {
			return invalid("unreadable body: there is more than one value in it")
		} else if more != io.EOF {
			err = more
		}
	}
	if empty && err == io.EOF {
		err = nil
	}
	if err != nil {
		return invalid("unreadable body: %s", jsonMistake(err))
	}
	wasRead(w)
	return checkLeast(reflect.TypeOf(v), body, "")
}
