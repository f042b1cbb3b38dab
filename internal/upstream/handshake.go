package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

// probeWait is how long a server may take to answer the question whether it is of
// the stateless era before it also gets the old handshake. Servers that start
// slowly get both questions and answer both.
const probeWait = 3 * time.Second

// Over HTTP even a server that does not know the question answers it, so only a slow
// server needs time: it gets more, and is asked again if it refuses the old
// handshake.
const (
	probeWaitHTTP = 10 * time.Second
	slowWait      = 15 * time.Second
)

// ConnOptions say how to greet a server.
type ConnOptions struct {
	Server   string
	Protocol string // auto, or one revision
	Shared   bool   // several sessions use the connection
	alone    bool   // one session alone has the instance
	Limit    int    // bytes of one message
	// Claims are the client capabilities to declare, raw.
	Claims []byte
	// Allowed names the capabilities that may be claimed for a client.
	Allowed []string
	// Hello, when set, is what an adopted or restored instance said before; the
	// handshake is not repeated.
	Hello *Hello
	// NoProbe starts with the old handshake: some servers die of a question they
	// don't know.
	NoProbe bool
	// Listed reports whether a tool is in the stored list of the server, as a
	// principal sees it; nil if none is stored.
	Listed func(who, tool string) bool
	// Hidden is called for tools that are not offered, with the reason; may be nil.
	Hidden func(tool, why string)
	// Mask hides secrets in what is quoted of a server's answers; nil hides none.
	Mask func(string) string
	Log  *slog.Logger

	mend     driver.Mends
	restored bool // it continues from a frozen instance
	why      func(stop <-chan struct{}) error
}

// clientInfo is how the gateway introduces itself where it speaks for no
// client in particular.
var clientInfo = []byte(`{"name":"tine","title":"Tine","version":"1"}`)

// errProbe reports that the connection ended while the server was asked for
// its era.
var errProbe = errors.New("the server ended when asked for its protocol era")

// Connect greets the server behind a link and returns a connection to it.
func Connect(ctx context.Context, link driver.Link, o ConnOptions, ev events) (conn *Conn, err error) {
	c := newConn(o.Server, ev, o.Log)
	defer telemetry.Contain(o.Log, telemetry.InUpstream, o.Server, func(e error) {
		if c.t != nil {
			c.close()
		}
		conn, err = nil, e
	})
	c.allowed, c.mask, c.mend, c.why, c.shared, c.alone, c.own = o.Allowed, o.Mask, o.mend, o.why, o.Shared, o.alone, link.Own
	c.listed, c.hidden, c.save = o.Listed, o.Hidden, link.Save
	if link.HTTP != nil {
		return connectHTTP(ctx, c, link.HTTP, o)
	}
	return connectStream(ctx, c, link.Stream, o)
}

func connectStream(ctx context.Context, c *Conn, s driver.Stream, o ConnOptions) (*Conn, error) {
	if o.Hello != nil {
		c.hello.Store(o.Hello)
	}
	t := newStreamTransport(c, s, o)
	if o.Hello != nil {
		c.begin(o.Hello)
		return c, nil
	}
	silent := false
	err := c.greet(ctx, o, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, probeWait)
		defer cancel()
		modern, _ := c.discover(ctx)
		select {
		case <-t.done():
			if ours := (*api.Error)(nil); errors.As(t.err(), &ours) {
				return false, ours
			}
			return false, errProbe
		default:
		}
		if silent = !modern && ctx.Err() != nil; silent {
			// Only messages of the handshake may come between those.
			c.backlog.flush(sendTimeout)
		}
		return modern, nil
	})
	if err != nil && silent {
		// It may have been too slow for the first question and too new for the
		// second: now that it answers, it can be asked again.
		if modern, _ := c.discover(ctx); modern {
			err = nil
		}
	}
	if err != nil {
		t.last(ctx)
		c.close()
		return nil, withStray(err, t.stray.first)
	}
	return c, nil
}

// last waits for the output of a server that sent no message before it ended:
// writing to it may fail before that output is read.
func (t *streamTransport) last(ctx context.Context) {
	if t.spoke.Load() {
		return
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-t.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// greet finds the server's era and shakes hands accordingly.
func (c *Conn) greet(ctx context.Context, o ConnOptions, probe func(context.Context) (bool, error)) error {
	switch {
	case o.Protocol == "" || o.Protocol == "auto":
		if !o.NoProbe {
			modern, err := probe(ctx)
			if modern || err != nil {
				return err
			}
		}
		return c.initialize(ctx, wire.LatestLegacy, o.Claims)
	case wire.Modern(o.Protocol):
		modern, err := c.discover(ctx)
		if err == nil && !modern {
			err = fmt.Errorf("does not speak %s, which servers.%s.protocol asks for", o.Protocol, o.Server)
		}
		return err
	}
	return c.initialize(ctx, o.Protocol, o.Claims)
}

// discover asks a server what it is, the modern way. It reports false, with the
// reason or nil, if the server is of the other era.
func (c *Conn) discover(ctx context.Context) (bool, error) {
	c.hello.Store(&Hello{Version: wire.Latest})
	res, err := c.simple(ctx, wire.MethodDiscover, nil)
	if err == nil && namesLatest(res.Error) {
		res, err = c.simple(ctx, wire.MethodDiscover, nil)
	}
	if err != nil || res.Error != nil {
		c.hello.Store(&Hello{})
		return false, err
	}
	var d struct {
		SupportedVersions []string                   `json:"supportedVersions"`
		Capabilities      json.RawMessage            `json:"capabilities"`
		Instructions      json.RawMessage            `json:"instructions"`
		Meta              map[string]json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(res.Result, &d); err != nil || !slices.Contains(d.SupportedVersions, wire.Latest) {
		c.hello.Store(&Hello{})
		return false, nil
	}
	hello := &Hello{
		Version: wire.Latest, Info: d.Meta[wire.MetaServerInfo],
		Capabilities: d.Capabilities, Instructions: d.Instructions,
	}
	if _, ok := c.t.(*httpTransport); ok {
		hello.Transport = transportStreamable
	}
	c.hello.Store(hello)
	return true, nil
}

// namesLatest reports whether a server refuses the version of the request and names,
// among those it supports, one of the stateless era that we speak: there is only this
// one.
func namesLatest(raw []byte) bool {
	if raw == nil {
		return false
	}
	e := wire.ParseError(raw)
	var data struct {
		Supported []string `json:"supported"`
	}
	return e.Code == wire.CodeUnsupportedVersion && json.Unmarshal(e.Data, &data) == nil && slices.Contains(data.Supported, wire.Latest)
}

// initialize makes the old handshake.
func (c *Conn) initialize(ctx context.Context, version string, claims []byte) error {
	c.hello.Store(&Hello{})
	if len(claims) == 0 {
		claims = []byte("{}")
	}
	params := fmt.Appendf(nil, `{"protocolVersion":%s,"capabilities":%s,"clientInfo":%s}`, wire.Quote(version), claims, clientInfo)
	res, err := c.simple(ctx, wire.MethodInitialize, params)
	if err != nil {
		return err
	}
	if res.Error != nil {
		return failure(api.KindInfrastructure, c.server, false, "refused the handshake: %s", wire.ParseError(res.Error).Message)
	}
	var r struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Capabilities    json.RawMessage `json:"capabilities"`
		ServerInfo      json.RawMessage `json:"serverInfo"`
		Instructions    json.RawMessage `json:"instructions"`
	}
	if err := json.Unmarshal(res.Result, &r); err != nil {
		return failure(api.KindInfrastructure, c.server, false, "answered the handshake with something unreadable: %v", err)
	}
	if !wire.Known(r.ProtocolVersion) || wire.Modern(r.ProtocolVersion) {
		return failure(api.KindInfrastructure, c.server, false, "wants protocol %q, which Tine does not speak", r.ProtocolVersion)
	}
	hello := &Hello{Version: r.ProtocolVersion, Info: r.ServerInfo, Capabilities: r.Capabilities, Instructions: r.Instructions}
	if t, ok := c.t.(*httpTransport); ok {
		t.mu.Lock()
		t.version = r.ProtocolVersion
		hello.Transport, hello.Session = transportStreamable, t.session
		t.mu.Unlock()
	}
	c.hello.Store(hello)
	return c.notify(ctx, wire.NoteInitialized, nil)
}

func connectHTTP(ctx context.Context, c *Conn, ep *driver.Endpoint, o ConnOptions) (*Conn, error) {
	if ep.Transport == transportSSE || ep.Transport != transportStreamable && strings.HasSuffix(strings.TrimSuffix(pathOf(ep.URL), "/"), "/sse") {
		return connectSSE(ctx, c, ep, o)
	}
	t := newHTTPTransport(c, ep, o.Limit)
	if wire.Modern(o.Protocol) {
		t.version = wire.Latest
	}
	c.t = t
	t.handshake = func(ctx context.Context) error {
		version := wire.LatestLegacy
		if o.Protocol != "" && o.Protocol != "auto" {
			version = o.Protocol
		}
		return c.initialize(ctx, version, o.Claims)
	}
	switch {
	case o.Hello == nil:
	case o.Hello.Transport == transportSSE:
		return connectSSE(ctx, c, ep, o)
	case o.Hello.Transport == transportStreamable:
		t.resumeSession(o.Hello)
		return c, nil
	}
	var refused error // why the server did not answer the question for its era
	slow := false     // it did not answer it in time
	err := c.greet(ctx, o, func(ctx context.Context) (bool, error) {
		t.version = wire.Latest
		probe, cancel := context.WithTimeout(ctx, probeWaitHTTP)
		defer cancel()
		modern, err := c.discover(probe)
		if modern {
			return true, nil
		}
		t.version = ""
		if slow = probe.Err() != nil && ctx.Err() == nil; slow {
			return false, nil // it may never answer unknown requests
		}
		var fail *api.Error
		if errors.As(err, &fail) && (fail.Kind == api.KindTimeout || fail.Kind == api.KindLost || fail.Retryable && !strings.Contains(fail.Message, "HTTP ")) {
			return false, err // not reached at all: the old handshake would not help
		}
		if fail != nil && fail.Kind == api.KindRefused {
			refused = err
		}
		return false, nil
	})
	if err != nil && slow && Kind(err) != api.KindRefused {
		// It may have been too slow for the first question and too new for the second.
		t.version = wire.Latest
		again, cancel := context.WithTimeout(ctx, slowWait)
		if modern, _ := c.discover(again); modern {
			err = nil
		}
		cancel()
	}
	if c.modern() {
		t.version = wire.Latest
	}
	if err == nil {
		return c, nil
	}
	c.close()
	if ep.Transport != transportStreamable && maybeSSE(err) {
		if sse, sseErr := connectSSE(ctx, newConnLike(c), ep, o); sseErr == nil {
			return sse, nil
		}
	}
	if refused != nil {
		return nil, refused
	}
	return nil, err
}

func newConnLike(c *Conn) *Conn {
	n := newConn(c.server, c.events, c.log)
	n.allowed, n.mask, n.mend, n.shared = c.allowed, c.mask, c.mend, c.shared
	return n
}

// maybeSSE reports whether a refused handshake looks like a server of the
// first HTTP transport.
func maybeSSE(err error) bool {
	var fail *api.Error
	if !errors.As(err, &fail) {
		return false
	}
	for _, code := range []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed} {
		if strings.Contains(fail.Message, fmt.Sprintf("HTTP %d ", code)) {
			return true
		}
	}
	return false
}

func connectSSE(ctx context.Context, c *Conn, ep *driver.Endpoint, o ConnOptions) (*Conn, error) {
	s, err := dialSSE(ctx, ep, o.Limit, o.Mask)
	if err != nil {
		return nil, failure(api.KindInfrastructure, o.Server, true, "%v", err)
	}
	o.NoProbe = true
	o.Hello, o.restored = nil, false // with a new connection the server expects a handshake
	if c, err = connectStream(ctx, c, s, o); err != nil {
		return nil, err
	}
	hello := c.Hello()
	hello.Transport = transportSSE
	c.hello.Store(&hello)
	return c, nil
}

func pathOf(url string) string {
	if i := strings.IndexAny(url, "?#"); i >= 0 {
		url = url[:i]
	}
	return url
}
