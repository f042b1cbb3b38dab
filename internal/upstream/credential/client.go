package credential

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// clients makes the HTTP clients for authorization servers and metadata.
type clients struct {
	make func(caFile string) (*http.Client, error) // nil for our own

	mu   sync.Mutex
	ours map[string]*trusted // by CA file
}

// trusted is a transport and the authorities it was made with.
type trusted struct {
	ca []byte
	t  *http.Transport
}

// get returns a client that stays at one origin.
func (c *clients) get(caFile string) (*http.Client, error) {
	var hc http.Client
	if c.make != nil {
		given, err := c.make(caFile)
		if err != nil {
			return nil, err
		}
		hc = *given
		if hc.Transport == nil {
			hc.Transport = http.DefaultTransport
		}
		hc.Transport = asGiven{hc.Transport}
	} else {
		t, err := c.transport(caFile)
		if err != nil {
			return nil, err
		}
		hc.Transport = t
	}
	if hc.Timeout == 0 {
		hc.Timeout = askTimeout
	}
	hc.Jar = nil
	hc.CheckRedirect = stay
	return &hc, nil
}

// asGiven keeps a transport from being cloned: the library that reads metadata
// clones an *http.Transport for every request, and leaves its connections open.
type asGiven struct{ http.RoundTripper }

// stay is a CheckRedirect that keeps secrets at the origin they were meant for,
// and a POST a POST.
func stay(r *http.Request, via []*http.Request) error {
	switch {
	case driver.Origin(r.URL) != driver.Origin(via[0].URL):
		return &strayError{fmt.Sprintf("redirects to %s, another origin, where nothing is sent", driver.Origin(r.URL))}
	case r.Method != via[0].Method:
		return &strayError{fmt.Sprintf("redirects a %s in a way that makes it a %s", via[0].Method, r.Method)}
	case len(via) >= 5:
		return &strayError{"redirects without end"}
	}
	return nil
}

// A strayError is a redirect that is not followed.
type strayError struct{ text string }

func (e *strayError) Error() string { return e.text }

// transport returns the transport for a CA file; one whose file has changed is
// made anew.
func (c *clients) transport(caFile string) (*http.Transport, error) {
	var ca []byte
	if caFile != "" {
		var err error
		if ca, err = os.ReadFile(caFile); err != nil {
			return nil, fmt.Errorf("read the CA file: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.ours[caFile]
	if old != nil && bytes.Equal(old.ca, ca) {
		return old.t, nil
	}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 20 * time.Second,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   2,
		ForceAttemptHTTP2:     true,
		// An answer that says nothing in a megabyte of headers says nothing.
		MaxResponseHeaderBytes: 64 << 10,
	}
	if caFile != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("the CA file %s holds no certificate in PEM", caFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if old != nil {
		old.t.CloseIdleConnections()
	}
	if c.ours == nil {
		c.ours = make(map[string]*trusted)
	}
	c.ours[caFile] = &trusted{ca: ca, t: t}
	return t, nil
}

func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.ours {
		t.t.CloseIdleConnections()
	}
}
