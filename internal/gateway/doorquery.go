package gateway

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
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
func (g *Gateway) enterSession(ctx context.Context, who identity.Principal, d *door, query url.Values) (err error) {
	given, named := query[sessionKey]
	switch {
	case d.session != "" && named:
		return invalid("the path of this URL names a session; leave ?%s= out", sessionKey)
	case d.session != "":
		d.session, err = g.sessionID(who, d.session)
		return err
	case !named:
		return nil
	case len(given) != 1 || given[0] == "":
		return invalid("%s in the URL must be one name, such as ?%s=work; leave it out for the session that you have without a name", sessionKey, sessionKey)
	}
	s, err := g.named(ctx, who, given[0])
	if err == nil {
		d.session = s.ID
	}
	return err
}
