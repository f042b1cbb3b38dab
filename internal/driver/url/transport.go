package url

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// shared is a transport and how many instances use it.
type shared struct {
	t     *http.Transport
	ca    []byte // what the CA file held
	users int
}

// transport returns the transport for a CA file, or for none. When the last user
// has released it, its idle connections are closed.
func (d *Driver) transport(caFile string) (*http.Transport, func(), error) {
	var ca []byte
	if caFile != "" {
		var err error
		if ca, err = os.ReadFile(caFile); err != nil {
			return nil, nil, fmt.Errorf("read the CA file: %w", err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.transports[caFile]
	if s == nil || !bytes.Equal(s.ca, ca) { // a file that has changed is a new one
		t, err := newTransport(caFile, ca)
		if err != nil {
			return nil, nil, err
		}
		s = &shared{t: t, ca: ca}
		if d.transports == nil {
			d.transports = make(map[string]*shared)
		}
		d.transports[caFile] = s
	}
	s.users++
	return s.t, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if s.users--; s.users > 0 {
			return
		}
		s.t.CloseIdleConnections()
		if d.transports[caFile] == s {
			delete(d.transports, caFile)
		}
	}, nil
}

// newTransport makes a transport that waits for answers as long as its requests
// do: calls and streams have no length that could be known here.
func newTransport(caFile string, ca []byte) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   256,
		ForceAttemptHTTP2:     true,
		// Bodies are passed on as they are; packing them costs more than it saves
		// on what is mostly small and near.
		DisableCompression: true,
		// Many streams share one connection, so that a dead one must be noticed.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	if caFile == "" {
		return t, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("the CA file %s holds no certificate in PEM", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

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
