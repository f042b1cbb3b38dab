package remote

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/routes"
)

// guard keeps a client to one origin: there is a credential on every request.
type guard struct {
	server string
	origin string
	mask   *mask
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if driver.Origin(r.URL) != g.origin {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("server %q: refused to talk to %s, which is not %s", g.server, driver.Origin(r.URL), g.origin)
	}
	if sent := r.Header.Get("Authorization"); sent != "" {
		g.mask.learn(sent) // one that was fetched is known only now
	}
	return g.next.RoundTrip(r)
}

// elsewhere is a redirect that is not followed.
type elsewhere struct{ text string }

func (e *elsewhere) Error() string { return e.text }

// redirect is the client's CheckRedirect.
func (g *guard) redirect(r *http.Request, via []*http.Request) error {
	switch {
	case driver.Origin(r.URL) != g.origin:
		return &elsewhere{fmt.Sprintf("it redirects to %s, another origin, which credentials are not sent to", shown(r.URL))}
	case r.Method != via[0].Method:
		return &elsewhere{fmt.Sprintf("it redirects to %s in a way that makes a %s of it", shown(r.URL), r.Method)}
	case len(via) >= 5:
		return &elsewhere{"it redirects too often"}
	}
	return nil
}

// client is one that talks to the origin of a URL alone. The mask learns what it
// sends.
func (d *Driver) client(server string, u *url.URL, r routes.Route, m *mask, authorize wrapper) (*http.Client, func(), error) {
	t, release, err := d.pool.Transport(r)
	if err != nil {
		return nil, nil, fmt.Errorf("server %q: %w; mend servers.%s.ca_file", server, err, server)
	}
	g := &guard{server: server, origin: driver.Origin(u), mask: m, next: t}
	var through http.RoundTripper = g
	if authorize != nil {
		through = authorize(g)
	}
	return &http.Client{Transport: through, CheckRedirect: g.redirect}, release, nil
}

// plain takes the *url.Error off, whose text repeats the URL and any secret in
// it.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
