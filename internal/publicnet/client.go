package publicnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// Options say how far a client may reach.
type Options struct {
	// AllowPrivate switches the guard off.
	AllowPrivate bool
	// Proxy, if set, is what everything goes through: an http, https or socks5
	// URL. It may itself have a private address, and it resolves names by
	// itself, so a name is checked here as it resolves here: a proxy that sees
	// another network than this machine needs rules of its own.
	Proxy *url.URL
}

// NewClient returns an HTTP client that connects to public addresses only. No
// proxy is taken from the environment. It is made for one piece of work: call
// its CloseIdleConnections when that is done. It follows redirects as net/http
// does, each through the same guard.
func NewClient(o Options) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if !o.AllowPrivate && o.Proxy == nil {
		dialer.ControlContext = RefusePrivate
	}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
	if o.Proxy != nil {
		t.Proxy = http.ProxyURL(o.Proxy)
	}
	return &http.Client{Transport: &guard{Transport: t, opts: o}}
}

// RefusePrivate is a net.Dialer's ControlContext that lets it reach public addresses
// only. It runs between the resolution of a name and the connection, with the very
// address that is about to be used.
func RefusePrivate(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read the address %q: %w", address, err)
	}
	if !IsPublic(ap.Addr()) {
		return &Blocked{Addr: ap.Addr()}
	}
	return nil
}

// guard checks what can be known of a request before it is sent, and puts the
// host's name into the errors of the dialer, which does not know it.
type guard struct {
	*http.Transport
	opts Options
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if s := req.URL.Scheme; s != "http" && s != "https" {
		return nil, fmt.Errorf("scheme %q is not supported; use http or https", s)
	}
	if !g.opts.AllowPrivate {
		if err := g.check(req.Context(), req.URL.Hostname()); err != nil {
			return nil, err
		}
	}
	resp, err := g.Transport.RoundTrip(req)
	var b *Blocked
	if errors.As(err, &b) {
		return nil, &Blocked{Host: req.URL.Hostname(), Addr: b.Addr}
	}
	return resp, err
}

func (g *guard) check(ctx context.Context, host string) error {
	if ip, ok := ParseHost(host); ok {
		if !IsPublic(ip) {
			return &Blocked{Host: host, Addr: ip}
		}
		return nil
	}
	if g.opts.Proxy == nil {
		return nil // the dialer sees the address
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // only the proxy knows the name
	}
	for _, ip := range ips {
		if !IsPublic(ip) {
			return &Blocked{Host: host, Addr: ip.Unmap()}
		}
	}
	return nil
}
