package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	front "github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/wire"
)

// A bridge joins a client on stdio to a running gateway: each line is a POST, and
// each message of the answer is a line. The gateway keeps the client over a
// restart, so the bridge only has to try again.
type bridge struct {
	// locate says where the gateway is now, which may come back at another address.
	locate func() (endpoint, error)

	outMu sync.Mutex
	out   *bufio.Writer

	mu      sync.Mutex
	http    *http.Client
	cert    string // that the gateway shows
	url     string
	token   string
	session string // the client's id at the gateway
	version string
	cancels map[string]context.CancelFunc // requests of the stateless era, by raw id
	wg      sync.WaitGroup
}

// maxBridgeLine bounds a message in either direction.
const maxBridgeLine = 64 << 20

func newBridge(locate func() (endpoint, error), out io.Writer) (*bridge, error) {
	b := &bridge{
		locate: locate, out: bufio.NewWriter(out),
		cancels: make(map[string]context.CancelFunc),
	}
	e, err := locate()
	if err != nil {
		return nil, err
	}
	b.aim(e)
	return b, nil
}

// aim sets where the gateway is.
func (b *bridge) aim(e endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.http == nil || b.cert != e.cert {
		if b.http != nil {
			b.http.CloseIdleConnections()
		}
		// A gateway never redirects: another server must not get the token.
		b.http = &http.Client{Transport: e.transport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		b.cert = e.cert
	}
	b.url, b.token = e.url, e.token
}

func (b *bridge) client() *http.Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.http
}

// find looks up where the gateway is now: a new one has a new token, and perhaps
// another address.
func (b *bridge) find() {
	if e, err := b.locate(); err == nil {
		b.aim(e)
	}
}

// outdated reports whether a request has the token of an earlier gateway. Another
// request may have found the new one meanwhile.
func (b *bridge) outdated(req *http.Request) bool {
	b.find()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.token != "" && req.Header.Get("Authorization") != "Bearer "+b.token
}

// run relays until in ends or ctx does.
func (b *bridge) run(ctx context.Context, in io.Reader) error {
	life, end := context.WithCancel(ctx)
	defer func() { b.client().CloseIdleConnections() }()
	read := make(chan error, 1)
	go func() { read <- b.read(life, in) }()
	var err error
	select {
	case err = <-read:
	case <-ctx.Done():
	}
	b.settle(ctx)
	b.goodbye()
	end()
	b.wg.Wait()
	return err
}

// settle gives running requests a moment to be answered.
func (b *bridge) settle(ctx context.Context) {
	deadline := time.After(5 * time.Second)
	for {
		b.mu.Lock()
		n := len(b.cancels)
		b.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			return
		case <-ctx.Done():
			return
		}
	}
}

// goodbye ends the client at the gateway, and with it a session of its own.
func (b *bridge) goodbye() {
	b.mu.Lock()
	session := b.session
	b.mu.Unlock()
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if req, err := b.request(ctx, http.MethodDelete, nil); err == nil {
		if resp, err := b.client().Do(req); err == nil {
			resp.Body.Close()
		}
	}
}

func (b *bridge) read(ctx context.Context, in io.Reader) error {
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 64<<10), maxBridgeLine)
	for sc.Scan() {
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) == 0 {
			continue
		}
		frame := bytes.Clone(line)
		msg, err := wire.Scan(frame)
		if err != nil {
			b.fail(nil, wire.CodeParse, "unreadable message: "+err.Error())
			continue
		}
		b.relay(ctx, msg, frame)
	}
	return sc.Err()
}

// relay sends one message. Only the handshake is waited for: later messages need
// its outcome.
func (b *bridge) relay(ctx context.Context, msg wire.Message, frame []byte) {
	if msg.Method == wire.NoteCancelled {
		at, _ := wire.Find(msg.Params, "requestId")
		b.mu.Lock()
		cancel := b.cancels[string(at.Of(msg.Params))]
		session := b.session
		b.mu.Unlock()
		if session == "" && cancel != nil {
			cancel() // without a connection, going away is how to cancel
			return
		}
	}
	if msg.Method == wire.MethodInitialize {
		b.send(ctx, msg, frame)
		return
	}
	if !msg.IsRequest() {
		// In order: a notification must not overtake the one before it.
		b.send(ctx, msg, frame)
		return
	}
	call, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	b.cancels[string(msg.ID)] = cancel
	b.mu.Unlock()
	b.wg.Go(func() {
		defer cancel()
		defer func() {
			b.mu.Lock()
			delete(b.cancels, string(msg.ID))
			b.mu.Unlock()
		}()
		b.send(call, msg, frame)
	})
}

func (b *bridge) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	var rd io.Reader
	if body != nil {
		rd = bytes.NewReader(body)
	}
	b.mu.Lock()
	session, version, url, token := b.session, b.version, b.url, b.token
	b.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, method, url, rd)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if session != "" {
		req.Header.Set(wire.HeaderSession, session)
		req.Header.Set(wire.HeaderVersion, version)
	}
	return req, nil
}

// post makes the request of one message.
func (b *bridge) post(ctx context.Context, msg wire.Message, frame []byte) (*http.Request, error) {
	req, err := b.request(ctx, http.MethodPost, frame)
	if err != nil {
		return nil, err
	}
	if p, err := wire.ScanParams(msg.Method, msg.Params); err == nil && p.Version.Ok() {
		version, _ := wire.Unquote(p.Version.Of(p.Raw))
		req.Header.Del(wire.HeaderSession)
		req.Header.Set(wire.HeaderVersion, version)
		req.Header.Set(wire.HeaderMethod, msg.Method)
		if p.Target.Ok() && msg.Method != wire.MethodComplete {
			req.Header.Set(wire.HeaderName, wire.EncodeHeader(p.Name()))
		}
	} else if msg.Method == wire.MethodInitialize {
		// With the client's id, where it has one: the gateway refuses a second
		// handshake, unless it no longer knows the client.
		req.Header.Del(wire.HeaderVersion)
	}
	return req, nil
}

// send posts one message and writes the answer.
func (b *bridge) send(ctx context.Context, msg wire.Message, frame []byte) {
	resp, err := b.do(ctx, msg, frame)
	if err != nil {
		if msg.IsRequest() && ctx.Err() == nil {
			b.away(msg, err)
		}
		return
	}
	defer resp.Body.Close()
	opened := false
	if id := resp.Header.Get(wire.HeaderSession); id != "" && msg.Method == wire.MethodInitialize {
		opened = true
		b.mu.Lock()
		b.session = id
		b.mu.Unlock()
	}
	answered := b.copyOut(resp, msg)
	if opened && answered {
		b.wg.Go(func() { b.listen(ctx) })
	}
	if !answered && msg.IsRequest() && ctx.Err() == nil {
		b.away(msg, errors.New("it went away before the answer"))
	}
}

// do sends a message. If the gateway did not take it because it is restarting, or
// is another one now, it retries for a while.
func (b *bridge) do(ctx context.Context, msg wire.Message, frame []byte) (*http.Response, error) {
	deadline := time.Now().Add(15 * time.Second)
	for {
		req, err := b.post(ctx, msg, frame)
		if err != nil {
			return nil, err
		}
		resp, err := b.client().Do(req)
		switch {
		case err == nil && resp.StatusCode == http.StatusUnauthorized && b.outdated(req):
			resp.Body.Close()
			continue
		case err == nil || ctx.Err() != nil || time.Now().After(deadline) || !neverSent(err):
			return resp, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		b.find()
	}
}

// neverSent reports whether a request failed before there was a connection to
// send it on.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// copyOut writes the messages of a response. It reports whether the answer was
// among them.
func (b *bridge) copyOut(resp *http.Response, msg wire.Message) bool {
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return b.copyEvents(resp.Body, msg.ID)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBridgeLine))
	if err != nil {
		return false
	}
	if !msg.IsRequest() {
		return true
	}
	m, err := wire.Scan(body)
	if err != nil || !m.IsResponse() {
		b.fail(msg.ID, wire.CodeTine, fmt.Sprintf("the gateway answered HTTP %d: %s", resp.StatusCode, bytes.TrimSpace(body[:min(len(body), 300)])))
		return true
	}
	if m.ID == nil {
		b.write(wire.AppendFailure(nil, msg.ID, m.Error))
		return true
	}
	if msg.Method == wire.MethodInitialize && m.Error == nil {
		b.mu.Lock()
		b.version = wire.FindString(m.Result, "protocolVersion")
		b.mu.Unlock()
	}
	b.write(body)
	return true
}

func (b *bridge) copyEvents(body io.Reader, id []byte) (answered bool) {
	events := wire.NewEventReader(body, maxBridgeLine)
	for {
		ev, err := events.Next()
		if err != nil {
			return answered
		}
		if len(ev.Data) == 0 {
			continue
		}
		m, err := wire.Scan(ev.Data)
		if err != nil {
			continue
		}
		if m.IsResponse() && string(m.ID) == string(id) {
			answered = true
			if v := wire.FindString(m.Result, "protocolVersion"); v != "" {
				b.mu.Lock()
				if b.version == "" {
					b.version = v
				}
				b.mu.Unlock()
			}
		}
		b.write(ev.Data)
	}
}

// listen keeps the stream open for messages that belong to no request.
func (b *bridge) listen(ctx context.Context) {
	for ctx.Err() == nil {
		req, err := b.request(ctx, http.MethodGet, nil)
		if err != nil {
			return
		}
		req.Header.Set("Accept", "text/event-stream")
		if resp, err := b.client().Do(req); err == nil {
			if resp.StatusCode == http.StatusOK {
				b.copyEvents(resp.Body, nil)
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusNotFound {
				return
			}
		}
		b.find()
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// away answers a request whose gateway went away, as the gateway would have: a tool call
// with a result, unless the client wants errors of the protocol.
func (b *bridge) away(msg wire.Message, why error) {
	e := &api.Error{Kind: api.KindInfrastructure, Message: "the gateway can't be reached, and the request was not sent: " + why.Error(), Retryable: true}
	if !neverSent(why) {
		e.Message, e.Retryable = "the gateway was gone before it answered ("+why.Error()+"); it is not known whether the request took effect", false
	}
	b.mu.Lock()
	at := b.url
	b.mu.Unlock()
	u, err := neturl.Parse(at)
	b.write(front.Failure(msg.ID, msg.Method, e, err == nil && u.Query().Get("errors") == config.ErrorsProtocol))
}

func (b *bridge) fail(id []byte, code int, message string) {
	b.write(wire.AppendFailure(nil, id, wire.AppendError(nil, &wire.Error{Code: code, Message: message})))
}

func (b *bridge) write(frame []byte) {
	b.outMu.Lock()
	defer b.outMu.Unlock()
	_, _ = b.out.Write(wire.OneLine(bytes.Clone(frame)))
	_ = b.out.WriteByte('\n')
	_ = b.out.Flush()
}
