// Package routes is how drivers that reach servers over HTTP connect: servers on the
// same route share its connections.
package routes

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

	"github.com/tine-mcp/tine/internal/publicnet"
)

// A Route is what tells transports apart.
type Route struct {
	CAFile  string        // of further certificate authorities; empty for none
	Connect time.Duration // how long a connection may take
	// Public has it reach public addresses only, and through no proxy, which would reach
	// others.
	Public bool
}

// Pool has the transports of a driver. The zero value works, and its methods may
// run at once.
type Pool struct {
	mu         sync.Mutex
	transports map[Route]*shared
}

// shared is a transport and how many use it.
type shared struct {
	t     *http.Transport
	ca    []byte // what the CA file held
	users int
}

// Transport returns the transport of a route. When the last user has released
// it, its idle connections are closed.
func (p *Pool) Transport(r Route) (t *http.Transport, release func(), err error) {
	var ca []byte
	if r.CAFile != "" {
		if ca, err = os.ReadFile(r.CAFile); err != nil {
			return nil, nil, fmt.Errorf("read the CA file: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.transports[r]
	if s == nil || !bytes.Equal(s.ca, ca) { // a file that has changed is a new one
		t, err := newTransport(r, ca)
		if err != nil {
			return nil, nil, err
		}
		s = &shared{t: t, ca: ca}
		if p.transports == nil {
			p.transports = make(map[Route]*shared)
		}
		p.transports[r] = s
	}
	s.users++
	return s.t, func() { p.release(r, s) }, nil
}

func (p *Pool) release(r Route, s *shared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.t.CloseIdleConnections()
	if p.transports[r] == s {
		delete(p.transports, r)
	}
}

// newTransport makes a transport that waits for answers as long as its requests
// do: calls and streams have no length that could be known here.
func newTransport(r Route, ca []byte) (*http.Transport, error) {
	dialer, proxy := &net.Dialer{Timeout: r.Connect, KeepAlive: 30 * time.Second}, http.ProxyFromEnvironment
	if r.Public {
		dialer.ControlContext, proxy = publicnet.RefusePrivate, nil
	}
	t := &http.Transport{
		Proxy:                 proxy,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   r.Connect,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   256,
		ForceAttemptHTTP2:     true,
		// Bodies are passed on as they are; packing them costs more than it saves
		// on what is mostly small and near, and a small one must not unpack to a
		// huge one.
		DisableCompression: true,
		// Many streams share one connection, so that a dead one must be noticed.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	if r.CAFile == "" {
		return t, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("the CA file %s holds no certificate in PEM", r.CAFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}
