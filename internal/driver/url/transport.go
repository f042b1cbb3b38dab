package url

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// connectTime is how long a connection to a server may take.
const connectTime = 10 * time.Second

// guard keeps a client to one origin. Headers with credentials are on every
// request, so none may go elsewhere: not by a redirect, nor because a server
// names another host for its messages.
type guard struct {
	server string
	url    *url.URL
	origin string
	next   http.RoundTripper
}

func (g *guard) allows(u *url.URL) bool {
	return u.Scheme == g.url.Scheme && u.Host == g.url.Host || driver.Origin(u) == g.origin
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if !g.allows(r.URL) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("server %q: refused to talk to %s, which is not %s", g.server, driver.Origin(r.URL), g.origin)
	}
	return g.next.RoundTrip(r)
}

// redirect is the client's CheckRedirect.
func (g *guard) redirect(r *http.Request, via []*http.Request) error {
	to := *r.URL
	to.User, to.RawQuery = nil, ""
	switch {
	case !g.allows(r.URL):
		return fmt.Errorf("server %q redirects to %s, another origin, which credentials are not sent to; set servers.%s.url to it if that is right", g.server, to.String(), g.server)
	case r.Method != via[0].Method:
		return fmt.Errorf("server %q redirects a %s to %s in a way that makes it a %s; set servers.%s.url to that", g.server, via[0].Method, to.String(), r.Method, g.server)
	case len(via) >= 10:
		return errors.New("stopped after 10 redirects")
	}
	return nil
}
