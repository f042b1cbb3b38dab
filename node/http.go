package node

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTP reaches a server over streamable HTTP, or over server-sent events if the
// URL's path ends in /sse. For headers, OAuth or an HTTP client of your own pass
// [Connect] a function that returns a [mcp.StreamableClientTransport].
//
// The environment variable MCP_TOKEN is sent as a bearer token, over https or to
// the machine itself, and not to another host that a redirect names.
func HTTP(url string) func() (mcp.Transport, error) {
	client := sync.OnceValue(func() *http.Client { return bearerClient(url) })
	return func() (mcp.Transport, error) {
		u, err := parseURL(url)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/sse") {
			return &mcp.SSEClientTransport{Endpoint: url, HTTPClient: client()}, nil
		}
		return &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client()}, nil
	}
}

// SSE reaches a server over the transport of 2024-11-05, server-sent events, at
// any URL. Otherwise it is like [HTTP].
func SSE(url string) func() (mcp.Transport, error) {
	client := sync.OnceValue(func() *http.Client { return bearerClient(url) })
	return func() (mcp.Transport, error) {
		if _, err := parseURL(url); err != nil {
			return nil, err
		}
		return &mcp.SSEClientTransport{Endpoint: url, HTTPClient: client()}, nil
	}
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		// Without the URL, which may have a password.
		return nil, fmt.Errorf("the URL can't be read: %w; it must begin with http:// or https:// and name a host", errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("URL %q: it must begin with http:// or https:// and name a host", shown(s))
	}
	return u, nil
}

// shown is a URL without what may be secret.
func shown(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "a URL that is not valid"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

func bearerClient(endpoint string) *http.Client {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 64
	u, _ := url.Parse(endpoint)
	return &http.Client{Transport: &bearer{base: base, endpoint: u}}
}

// A bearer sends MCP_TOKEN to one endpoint.
type bearer struct {
	base     *http.Transport
	endpoint *url.URL
}

func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	token := os.Getenv("MCP_TOKEN")
	if token != "" && req.Header.Get("Authorization") == "" && b.trusts(req.URL) {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return b.base.RoundTrip(req)
}

func (b *bearer) trusts(u *url.URL) bool {
	return b.endpoint != nil && u.Scheme == b.endpoint.Scheme && strings.EqualFold(u.Host, b.endpoint.Host) && private(u)
}

// private reports whether nobody on the way to u can read what is sent.
func private(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	return u.Scheme == "https" || strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
