package gateway

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/wire"
)

// sessionKey is the parameter of an endpoint's URL that names a session.
const sessionKey = "session"

// doorKeys are all parameters of an endpoint's URL.
var doorKeys = []string{sessionKey, viewKey, errorsKey, channelKey}

// checkMisspelt refuses a parameter that is one slip away from one there is: who wrote it
// would come in somewhere else than was meant. All others pass, since clients and proxies
// add what they like.
func checkMisspelt(query url.Values) *api.Error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(doorKeys, name) {
			continue
		}
		for _, known := range doorKeys {
			if config.Distance(strings.ToLower(name), known) <= 1 {
				return invalid("there is no parameter %q in the URL of an endpoint; it is called %s", clip(name), known)
			}
		}
	}
	return nil
}

// enterSession finds the session that the path or the query of a URL names, if one does.
func (g *Gateway) enterSession(r *http.Request, who identity.Principal, d *door, query url.Values) (err error) {
	given, named := query[sessionKey]
	switch {
	case d.session != "" && named:
		return invalid("the path of this URL names a session; leave ?%s= out", sessionKey)
	case d.session != "":
		if d.session, err = g.services.Sessions.ID(who, d.session); err != nil {
			return err
		}
		return g.checkHeader(r, who, d, d.session)
	case !named:
		return nil
	case len(given) != 1 || given[0] == "":
		return invalid("%s in the URL must be one name, such as ?%s=work; leave it out for the session that you have without a name", sessionKey, sessionKey)
	}
	id := g.services.Sessions.OwnNamed(who, given[0])
	if err := g.checkHeader(r, who, d, id); err != nil {
		return err
	}
	if id == "" && d.kind == doorStreamable && g.needsClient(r) { // the session is not made for it
		return unknownClient("")
	}
	s, err := g.services.Sessions.Named(r.Context(), who, given[0])
	if err == nil {
		d.session = s.ID
	}
	return err
}

// needsClient reports whether a request has an Mcp-Session-Id that must be of a client: one
// that initializes may have any, and one of the stateless era belongs to none. Its body can
// be read again.
func (g *Gateway) needsClient(r *http.Request) bool {
	if r.Header.Get(wire.HeaderSession) == "" {
		return false
	}
	if r.Method != http.MethodPost {
		return true
	}
	if wire.Modern(r.Header.Get(wire.HeaderVersion)) {
		return false
	}
	limit := g.edge.Load().body
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err != nil || int64(len(body)) > limit {
		return false // which is told
	}
	msg, err := wire.Scan(body)
	if err != nil {
		return true
	}
	params, err := wire.ScanParams(msg.Method, msg.Params)
	return err != nil || msg.Method != wire.MethodInitialize && !params.Version.Ok()
}

// checkHeader refuses a request whose Mcp-Session-Id is of another session than the one its
// URL names, by its id, which is empty for one that is still to be made: whichever of the
// two was used, the request would be in another session than it says. An id that a client
// got from a handshake elsewhere is unknown here, so that the client shakes hands anew, as
// MCP has it.
func (g *Gateway) checkHeader(r *http.Request, who identity.Principal, d *door, id string) error {
	header := r.Header.Get(wire.HeaderSession)
	switch {
	case header == "" || d.kind != doorStreamable:
	case session.IsID(header):
		if header != id {
			return invalid("the Mcp-Session-Id header names session %s, and the URL another; leave one of them out", clip(header))
		}
	default:
		if c := g.find(header, who); c != nil && c.sess.ID != id {
			return unknownClient("this Mcp-Session-Id is of a connection to session " + c.sess.ID + ", and the URL names another; initialize again without it")
		}
	}
	return nil
}
