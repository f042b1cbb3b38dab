package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// reached is an instance's own endpoint and what it is shown.
type reached struct {
	url     *url.URL
	header  http.Header
	client  *http.Client
	mask    *mask
	release func()
}

// reach is the way to an instance's endpoint. The orchestrator's credentials stay
// behind: the instance has its own, or none.
func (d *Driver) reach(e *entry) (*reached, error) {
	u, err := webURL(e.Endpoint)
	if err != nil {
		return nil, errors.New("the instance's mcp_endpoint_url " + err.Error())
	}
	r := &reached{header: make(http.Header), mask: &mask{}}
	switch {
	case e.Token != "":
		r.header.Set("Authorization", "Bearer "+e.Token)
	case u.User != nil:
		r.header.Set("Authorization", basic(u.User))
	}
	u.User = nil
	r.url = u
	r.mask.learn(r.header.Get("Authorization"))
	r.mask.learnQuery(u)
	r.client, r.release, err = d.client(e.Access.Server, u, e.Access.route(), r.mask, nil)
	return r, err
}

// direct is the way to an instance that is spoken to as MCP. Requests go through
// the instance's gate and end with it.
type direct struct {
	*reached
	i     *instance
	next  http.RoundTripper
	spoke atomic.Bool // it has answered before
}

func (d *Driver) newDirect(i *instance, spoke bool) (*direct, error) {
	r, err := d.reach(i.e)
	if err != nil {
		return nil, err
	}
	t := &direct{reached: r, i: i, next: r.client.Transport}
	t.spoke.Store(spoke)
	r.client.Transport = t
	return t, nil
}

func (t *direct) endpoint() *driver.Endpoint {
	return &driver.Endpoint{URL: t.url.String(), Client: t.client, Header: t.header.Clone(), Transport: "auto"}
}

// RoundTrip implements http.RoundTripper.
func (t *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	i := t.i
	ctx, cancel := context.WithCancel(r.Context())
	uncut := context.AfterFunc(i.life, cancel)
	leave := sync.OnceFunc(func() {
		uncut()
		cancel()
	})
	if i.life.Err() != nil {
		leave()
		closeBody(r)
		return nil, driver.ErrGone
	}
	if enters(r) {
		if err := i.gate.Enter(ctx); err != nil {
			leave()
			closeBody(r)
			return nil, err
		}
		out := leave
		leave = sync.OnceFunc(func() {
			i.gate.Leave()
			out()
		})
	}
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		leave()
		return nil, err
	}
	resp.Body = &leaving{resp.Body, leave}
	if resp.StatusCode < 400 {
		t.spoke.Store(true)
		return resp, nil
	}
	if err := t.refused(r, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// maxRefusal is how much of a refusal is passed on.
const maxRefusal = 64 << 10

// refused hides the token in a refusal, which may repeat it, and looks whether it
// means that the instance is gone, which it returns.
func (t *direct) refused(r *http.Request, resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	resp.Body.Close() // which lets the request out
	body = []byte(t.mask.hide(string(body)))
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Del("Content-Length")
	// A request of a session that the server does not know is sent again without
	// one; an error of the protocol comes from the instance itself; and a server
	// of the first HTTP transport has never answered a POST.
	missing := (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone) && r.Header.Get(wire.HeaderSession) == ""
	// A token of the instance's own may end with it.
	locked := resp.StatusCode == http.StatusUnauthorized && t.i.e.Token != ""
	if !missing && !locked || r.Method != http.MethodPost || !t.spoke.Load() {
		return nil
	}
	if msg, err := wire.Scan(body); err == nil && msg.IsResponse() {
		return nil
	}
	if api, ok := t.i.o.(*rest); ok && api.forgot(r.Context(), t.i.e, locked) {
		err := lost(t.i.e, &fault{what: "POST " + shown(t.url), status: resp.StatusCode, excerpt: t.mask.excerpt(body)})
		t.i.fail(err)
		return err
	}
	return nil
}

// enters reports whether a request begins something in the instance. Answers and
// cancellations must get through for running calls to end, and streams last as long as
// their client listens.
func enters(r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	if r.GetBody == nil {
		return true
	}
	body, err := r.GetBody()
	if err != nil {
		return true
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		return true
	}
	msg, err := wire.Scan(b)
	return err != nil || msg.IsRequest() && msg.Method != wire.MethodListen
}

// leaving tells when an answer is read or given up.
type leaving struct {
	io.ReadCloser
	leave func()
}

func (l *leaving) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if err != nil {
		l.leave()
	}
	return n, err
}

func (l *leaving) Close() error {
	defer l.leave()
	return l.ReadCloser.Close()
}
