package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/wire"
)

// An endpoint is where a bridge reaches a gateway.
type endpoint struct {
	url   string
	token string
	cert  string // SHA-256 of the certificate that the gateway must show; empty for the usual check
	// transport makes the transport of requests.
	transport func() *http.Transport
}

// endpointOf is the endpoint of the gateway of a state folder for the flags, as the
// principal of the token; empty is this machine's operator.
func endpointOf(g *gatewayFile, token string, o stdioFlags) (endpoint, error) {
	at, err := o.at(g.URL)
	return endpoint{url: at, token: cmp.Or(token, g.Token), cert: g.Cert, transport: g.transport}, err
}

// namedGateway is the URL of the gateway that a flag or the environment names; empty if
// none does. A flag that asks for a separate gateway, or for one with a certain config,
// overrides the environment.
func (c *cli) namedGateway(o stdioFlags) (string, error) {
	switch {
	case c.flags.url == "" && (o.alone || o.config != ""):
		return "", nil
	case o.alone:
		return "", usagef("--url and --alone exclude each other; give one")
	case c.flags.url != "" && o.config != "":
		return "", usagef("--url and --config exclude each other: the gateway at a URL has its own config; give one")
	}
	return cmp.Or(c.flags.url, c.getenv("TINE_URL")), nil
}

// locator finds the endpoint at the URL of a named gateway. If that is the gateway of the
// state folder and no token was given, it uses the gateway's own token, which changes
// with a restart.
func (c *cli) locator(named string, o stdioFlags) (func() (endpoint, error), error) {
	token, err := c.namedToken()
	if err != nil {
		return nil, err
	}
	at, err := o.at(named)
	if err != nil {
		return nil, err
	}
	return func() (endpoint, error) {
		e := endpoint{url: at, token: token, transport: func() *http.Transport {
			t := http.DefaultTransport.(*http.Transport).Clone()
			t.DialContext = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
			t.MaxIdleConnsPerHost = 64
			return t
		}}
		file, err := c.runningGateway()
		if err != nil || file == nil {
			return e, nil // the URL does
		}
		if its, err := o.at(file.URL); err == nil && sameHost(its, at) {
			e.token, e.cert, e.transport = cmp.Or(token, file.Token), file.Cert, file.transport
		}
		return e, nil
	}, nil
}

// sameHost reports whether two URLs are of the same listener.
func sameHost(a, b string) bool {
	x, err1 := neturl.Parse(a)
	y, err2 := neturl.Parse(b)
	return err1 == nil && err2 == nil && x.Scheme == y.Scheme && x.Host == y.Host
}

// at is the URL of the endpoint for the flags, at the address of a gateway or of one of
// its endpoints. The address's query stays: the gateway refuses errors in it.
func (o stdioFlags) at(address string) (string, error) {
	u, err := neturl.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", usagef("the gateway's URL does not parse, or has no scheme or host; write it like %s or %s/mcp?session=NAME", client.DefaultURL, client.DefaultURL)
	}
	q, err := neturl.ParseQuery(u.RawQuery)
	if err != nil {
		return "", usagef("the query of the gateway's URL can't be read: %w", err)
	}
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	mcp := slices.Index(parts, "mcp")
	switch {
	case mcp < 0 && slices.Contains(parts, "streamable-http"):
	case mcp < 0 && slices.Contains(parts, "sse"), mcp >= 0 && len(parts) == mcp+3 && parts[mcp+2] == "sse":
		return "", usagef("the gateway's URL is that of an event stream; give the one with /mcp in its place")
	case mcp < 0:
		u, parts = u.JoinPath("mcp"), []string{"mcp"}
	}
	if o.server != "" {
		if last := parts[len(parts)-1]; last != "mcp" && last != "streamable-http" {
			return "", usagef("--server and the path of the gateway's URL both name a server; give one")
		}
		u = u.JoinPath(o.server)
	}
	for _, p := range []struct{ key, flag string }{{"session", o.session}, {"view", o.view}, {"errors", o.errors}} {
		if p.flag == "" {
			continue
		}
		if given, ok := q[p.key]; ok && !slices.Equal(given, []string{p.flag}) {
			return "", usagef("--%s %s and ?%s=%s of the gateway's URL differ; give one", p.key, p.flag, p.key, strings.Join(given, ","))
		}
		q.Set(p.key, p.flag)
	}
	u.RawQuery, u.Fragment = q.Encode(), ""
	return u.String(), nil
}

// knock asks the gateway whether it admits a client at the endpoint, so that errors in
// its URL or token are reported at once. It sends a message that needs no answer and
// changes nothing.
func (b *bridge) knock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := b.request(ctx, http.MethodPost, wire.AppendRequest(nil, nil, wire.NoteInitialized, nil, nil))
	if err != nil {
		return err
	}
	resp, err := b.client().Do(req)
	if err != nil {
		if ue := (*neturl.Error)(nil); errors.As(err, &ue) {
			err = ue.Err // the address may have a secret in it
		}
		return fmt.Errorf("%w at %s: %w; is `tine serve` running there?", client.ErrNoGateway, req.URL.Host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	e := &api.Error{}
	if json.Unmarshal(body, e) == nil && e.Message != "" {
		e.Status = resp.StatusCode
		return e
	}
	return fmt.Errorf("the gateway answered HTTP %d: %s", resp.StatusCode, bytes.TrimSpace(body[:min(len(body), 300)]))
}
