// Package client is the Go client of Tine's control API. Its types are those of
// package api.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:8463"})
//	list, err := c.Servers(ctx)
//
// Any client can open, fork and close sessions and call their tools; a client with
// a session's own token has that session and no other:
//
//	world, err := c.OpenSession(ctx, api.NewSession{From: "base"})
//	forks, err := c.Fork(ctx, world.ID, api.ForkRequest{Count: 8})
//	one, err := c.As(forks.Sessions[0].Token)
//	result, err := one.Call(ctx, "memory__read_graph", nil)
//
// Lists that come in pages have an iterator beside them, such as AllSessions.
//
// A refusal is returned as an *api.Error; any other failure is an error that names
// the URL and what to do about it.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

// DefaultURL is where a gateway listens unless it is told otherwise.
const DefaultURL = "http://127.0.0.1:8463"

// ErrNoGateway is wrapped by the error of a request that no gateway received: it
// was not carried out, and may be sent again.
var ErrNoGateway = errors.New("no gateway")

var errBrokenToken = errors.New("the token has a line break in it; give it as one line")

// Options configure a Client. The zero value reaches a gateway on this machine
// with its defaults.
type Options struct {
	// URL is the gateway's base address; default DefaultURL. A path in it stays
	// in front of every path of the API.
	URL string
	// Token is sent as a bearer token when it is not empty.
	Token string
	// HTTPClient does the requests; default one that gives up on connecting
	// after five seconds and waits for an answer as long as the context allows.
	HTTPClient *http.Client
	// MaxBody bounds the bytes of one answer; default 128 MiB.
	MaxBody int64
}

// Client talks to one gateway. Its methods may run at once.
type Client struct {
	base    *url.URL
	token   string
	http    *http.Client
	maxBody int64
}

// New returns a client. It fails on an invalid URL and does not connect yet.
func New(o Options) (*Client, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	base, err := url.Parse(o.URL)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the url.Error would repeat the address, secrets and all
		}
		return nil, fmt.Errorf("the gateway's URL does not parse: %w; write it like %s", err, DefaultURL)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("gateway URL %q wants a scheme and a host; write it like %s", base.Redacted(), DefaultURL)
	}
	if strings.ContainsAny(o.Token, "\r\n") {
		return nil, errBrokenToken
	}
	base.RawQuery, base.Fragment = "", ""
	c := &Client{base: base, token: o.Token, maxBody: o.MaxBody}
	if c.maxBody <= 0 {
		c.maxBody = 128 << 20
	}
	var hc http.Client
	if o.HTTPClient != nil {
		hc = *o.HTTPClient
	} else {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
		hc.Transport = t
	}
	if hc.CheckRedirect == nil {
		// The API never redirects. A server that does is another program, and must
		// not get the token or a tool call.
		hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	c.http = &hc
	return c, nil
}

// As returns a client of the same gateway that shows another token, such as that
// of a session.
func (c *Client) As(token string) (*Client, error) {
	if strings.ContainsAny(token, "\r\n") {
		return nil, errBrokenToken
	}
	other := *c
	other.token = token
	return &other, nil
}

// CloseIdleConnections closes connections that no request uses. Later requests open new ones.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// URL returns the gateway's base address, without a password that may be in it.
func (c *Client) URL() string { return c.base.Redacted() }

// Status returns the gateway's version, state and counts.
func (c *Client) Status(ctx context.Context) (*api.Status, error) {
	return get[api.Status](ctx, c, nil, "v1", "status")
}

// Reload has the gateway read its config again. It returns when the new config is in
// effect, or with the reason why the gateway keeps the old one.
func (c *Client) Reload(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, nil, nil, nil, "v1", "reload")
}

// Servers lists the configured servers.
func (c *Client) Servers(ctx context.Context) (*api.ServerList, error) {
	return get[api.ServerList](ctx, c, nil, "v1", "servers")
}

// Server returns one server.
func (c *Client) Server(ctx context.Context, id string) (*api.Server, error) {
	return get[api.Server](ctx, c, nil, "v1", "servers", id)
}

// PatchServer changes a server at run time and returns it as it is then.
func (c *Client) PatchServer(ctx context.Context, id string, p api.ServerPatch) (*api.Server, error) {
	var out api.Server
	if err := c.do(ctx, http.MethodPatch, nil, p, &out, "v1", "servers", id); err != nil {
		return nil, err
	}
	return &out, nil
}

// Tools lists the tools of one server, or of all with server empty.
func (c *Client) Tools(ctx context.Context, server string) (*api.ToolList, error) {
	return c.ToolsIn(ctx, "", server)
}

// ToolsIn is Tools as a session has them.
func (c *Client) ToolsIn(ctx context.Context, session, server string) (*api.ToolList, error) {
	q := url.Values{}
	if server != "" {
		q.Set("server", server)
	}
	if session != "" {
		q.Set("session", session)
	}
	return get[api.ToolList](ctx, c, q, "v1", "tools")
}

// Call calls one tool by its name in the merged view, in the default session of the
// caller or in the session of its token. Arguments must be a JSON object or empty.
// The result has the bytes that came: nothing in it was decoded.
func (c *Client) Call(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	return c.CallIn(ctx, "", tool, arguments)
}

// CallIn is Call in a session.
func (c *Client) CallIn(ctx context.Context, session, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	return c.CallWithProgress(ctx, session, tool, arguments, nil)
}

// Logs returns the end of what a server's instances wrote to standard error, at
// most so many bytes each; zero leaves the number to the gateway.
func (c *Client) Logs(ctx context.Context, server string, bytes int64) (*api.LogList, error) {
	q := url.Values{}
	if bytes > 0 {
		q.Set("bytes", strconv.FormatInt(bytes, 10))
	}
	return get[api.LogList](ctx, c, q, "v1", "servers", server, "logs")
}

// OpenAPI returns the gateway's description of its API, an OpenAPI 3.1 document.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	doc, err := get[json.RawMessage](ctx, c, nil, "v1", "openapi.json")
	if err != nil {
		return nil, err
	}
	return *doc, nil
}

// Healthz says whether the gateway is alive.
func (c *Client) Healthz(ctx context.Context) (*api.Health, error) {
	return get[api.Health](ctx, c, nil, "healthz")
}

// Readyz says whether the gateway takes calls. While it starts or drains it
// answers 503 with a Health, which is returned and is not an error.
func (c *Client) Readyz(ctx context.Context) (*api.Health, error) {
	return get[api.Health](ctx, c, nil, "readyz")
}

func get[T any](ctx context.Context, c *Client, q url.Values, path ...string) (*T, error) {
	var out T
	if err := c.do(ctx, http.MethodGet, q, nil, &out, path...); err != nil {
		return nil, err
	}
	return &out, nil
}
