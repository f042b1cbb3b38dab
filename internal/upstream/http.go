package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// httpTransport talks streamable HTTP, both eras. Every request is an exchange
// of its own, made by the goroutine that calls, so what the server sends
// before the answer is known to belong to that call.
type httpTransport struct {
	c     *Conn
	ep    *driver.Endpoint
	url   *url.URL
	limit int

	mu      sync.Mutex
	session string // the legacy session's id; empty without one
	version string
	// renewing is closed when the new handshake is over.
	renewing chan struct{}
	// lost is the last session with calls that the server forgot.
	lost string
	// handshake makes a new session after the server forgot ours.
	handshake func(ctx context.Context) error
	// unproven is set while a connection that continues an earlier one's session
	// has had no answer.
	unproven atomic.Bool
	stays    atomic.Bool // the session is not to be ended with the connection

	linger linger

	life    context.Context
	end     context.CancelFunc
	streams sync.WaitGroup
	goodbye sync.WaitGroup // cancellations on their way
}

func newHTTPTransport(c *Conn, ep *driver.Endpoint, limit int) *httpTransport {
	t := &httpTransport{c: c, ep: ep, limit: limit}
	t.url, _ = url.Parse(ep.URL) // the driver has read it already
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

func (t *httpTransport) state() (session, version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session, t.version
}

// settled returns the session and version to send a request with, when no new
// handshake is in progress.
func (t *httpTransport) settled(ctx context.Context, method string) (session, version string, err error) {
	if method == wire.MethodInitialize {
		return "", "", nil
	}
	for {
		t.mu.Lock()
		wait := t.renewing
		session, version = t.session, t.version
		t.mu.Unlock()
		if wait == nil {
			return session, version, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return "", "", context.Cause(ctx)
		}
	}
}

func (t *httpTransport) roundTrip(ctx context.Context, k *call, frame []byte) (wire.Message, error) {
	for attempt := 0; ; attempt++ {
		if mayAsk(k.req.Method) {
			t.c.listen.await(ctx)
		}
		session, version, err := t.settled(ctx, k.req.Method)
		if err == nil && t.c.before != nil {
			err = t.c.before(k.req) // the session may be another than when the call began
		}
		if err != nil {
			return wire.Message{}, err
		}
		msg, err := t.exchange(ctx, k, frame, session, version)
		if err == nil {
			if t.unproven.Load() {
				t.unproven.Store(false)
			}
			if attempt == 0 && t.missesHeaders(k, &msg, version) && t.c.headers.learn(ctx, t.c) && t.c.headers.hides(ctx, t.c, k.req) == "" {
				continue
			}
			return msg, nil
		}
		var status *statusError
		if errors.As(err, &status) {
			// The server restarted, or forgot. It did nothing with the request, so
			// sending it again is safe.
			if status.stale && attempt == 0 && k.req.Method != wire.MethodInitialize {
				if err := t.renew(ctx, session); err != nil {
					return wire.Message{}, NotSent(err)
				}
				if recalls(k.req.Method) && t.wasLost(session) {
					return wire.Message{}, fmt.Errorf("%s: %w", errForgot.Error(), driver.ErrLost)
				}
				continue
			}
			return wire.Message{}, refusal(t.c, status)
		}
		return wire.Message{}, err
	}
}

// missesHeaders reports whether a modern server refused a call for want of
// headers that its schema asks for.
func (t *httpTransport) missesHeaders(k *call, msg *wire.Message, version string) bool {
	if msg.Error == nil || !wire.Modern(version) || k.req.Method != wire.MethodCallTool || k.req.Client.Modern {
		return false
	}
	at, _ := wire.Find(msg.Error, "code")
	return string(at.Of(msg.Error)) == "-32020"
}

func (t *httpTransport) newRequest(ctx context.Context, method, session, version string, body []byte) (*http.Request, error) {
	if t.url == nil {
		return nil, errors.New("the server's URL is unreadable")
	}
	t.c.traffic.Add(1)
	req := (&http.Request{
		Method: method, URL: t.url, Host: t.url.Host, Header: make(http.Header, len(t.ep.Header)+8),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	for name, values := range t.ep.Header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header["Content-Type"] = headerJSON
		req.Header["Accept"] = headerBoth
	} else {
		req.Header["Accept"] = headerEvents
	}
	if session != "" {
		req.Header[wire.HeaderSession] = []string{session}
	}
	if version != "" {
		req.Header[wire.HeaderVersion] = []string{version}
	}
	return req, nil
}

var (
	headerJSON   = []string{"application/json"}
	headerEvents = []string{"text/event-stream"}
	headerBoth   = []string{"application/json, text/event-stream"}
)

// exchange posts one request and reads until its answer.
func (t *httpTransport) exchange(ctx context.Context, k *call, frame []byte, session, version string) (wire.Message, error) {
	if k.req.Method != wire.MethodListen { // which lasts as long as a client listens
		t.c.sending.Add(1)
		defer t.c.sending.Add(-1)
	}
	req, err := t.newRequest(ctx, http.MethodPost, session, version, frame)
	if err != nil {
		return wire.Message{}, err
	}
	if k.req.Trace != "" {
		req.Header["Traceparent"] = []string{k.req.Trace}
		if k.req.TraceState != "" {
			req.Header["Tracestate"] = []string{k.req.TraceState}
		}
	}
	if k.req.Within != "" {
		req.Header[wire.HeaderTineCall] = []string{k.req.Within}
	}
	if wire.Modern(version) {
		req.Header[wire.HeaderMethod] = []string{k.req.Method}
		if k.req.Name != "" && (k.req.Method == wire.MethodCallTool || k.req.Method == wire.MethodGetPrompt || k.req.Method == wire.MethodReadResource) {
			req.Header[wire.HeaderName] = []string{wire.EncodeHeader(k.req.Name)}
		}
		if k.req.Header != nil {
			for name, values := range k.req.Header {
				req.Header[name] = values
			}
		} else if k.req.Method == wire.MethodCallTool {
			t.c.headers.set(req.Header, k.req)
		}
	}
	resp, err := post(t.ep, req, t.c.mask)
	if err != nil {
		t.abandon(ctx, k, version)
		err = t.unreachable(ctx, err)
		k.sent = !Unsent(err)
		return wire.Message{}, err
	}
	k.sent = true
	msg, err := t.read(ctx, k, resp, session, version)
	if err == nil || !k.events && ctx.Err() == nil {
		t.c.callers.answered(k.id)
	}
	if err != nil && ctx.Err() != nil {
		t.abandon(ctx, k, version)
		return wire.Message{}, context.Cause(ctx)
	}
	// A failed handshake leaves the old session in place: the next call finds it
	// unknown again and retries.
	if k.req.Method == wire.MethodInitialize && err == nil && msg.Result != nil {
		t.mu.Lock()
		t.session = resp.Header.Get(wire.HeaderSession)
		t.mu.Unlock()
	}
	return msg, err
}

// read takes the answer out of a response, passing on the messages before it.
func (t *httpTransport) read(ctx context.Context, k *call, resp *http.Response, session, version string) (wire.Message, error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media == "text/event-stream" && resp.StatusCode == http.StatusOK {
		k.events = true
		return t.readEvents(ctx, k, resp.Body, session, version)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent {
		return wire.Message{}, failure(api.KindInfrastructure, t.c.server, false, "HTTP %d without an answer", resp.StatusCode)
	}
	body, err := readBody(resp, t.limit)
	var large *wire.ErrTooLarge
	switch {
	case errors.As(err, &large) && resp.StatusCode != http.StatusOK:
		return wire.Message{}, &statusError{code: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After")}
	case errors.As(err, &large):
		return wire.Message{}, tooLarge(t.c.server, err)
	case err != nil:
		return wire.Message{}, fmt.Errorf("reading the answer: %w", err)
	}
	if (session != "" || t.unproven.Load()) && !wire.Modern(version) && unknownSession(resp.StatusCode, body) {
		return wire.Message{}, &statusError{code: resp.StatusCode, text: t.c.mask.excerpt(body), stale: true}
	}
	msg, err := wire.Scan(body)
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		// The body does not matter: the status and its header say what to do.
		text := t.c.mask.excerpt(body)
		if err == nil && msg.Error != nil {
			text = t.c.mask.excerpt([]byte(wire.ParseError(msg.Error).Message))
		}
		return wire.Message{}, &statusError{code: resp.StatusCode, text: text, retryAfter: resp.Header.Get("Retry-After")}
	}
	if err == nil && msg.IsResponse() && (resp.StatusCode == http.StatusOK || msg.Error != nil) {
		if id, ok := wire.Unquote(msg.ID); ok && id == k.id || msg.Error != nil && msg.ID == nil {
			return msg, nil
		}
		if resp.StatusCode == http.StatusOK {
			return wire.Message{}, failure(api.KindInfrastructure, t.c.server, false, "answered another request than the one it was sent")
		}
	}
	if resp.StatusCode != http.StatusOK {
		return wire.Message{}, &statusError{code: resp.StatusCode, text: t.c.mask.excerpt(body), retryAfter: resp.Header.Get("Retry-After")}
	}
	t.c.garbage.Add(1)
	if err == nil {
		err = errors.New("not an answer")
	}
	return wire.Message{}, failure(api.KindInfrastructure, t.c.server, false, "sent something that is not an MCP answer (%v): %s", err, t.c.mask.excerpt(body))
}

// unknownSession reports whether a legacy server says that it does not know a
// session. The protocol has 404 for that, with any body; the reference servers say
// 400 and name the session in an error.
func unknownSession(status int, body []byte) bool {
	switch status {
	case http.StatusNotFound:
		return true
	case http.StatusBadRequest:
		text := strings.ToLower(wire.FindString(body, "error", "message"))
		return strings.Contains(text, "session id") || strings.Contains(text, "session not found")
	}
	return false
}

func (t *httpTransport) readEvents(ctx context.Context, k *call, body io.ReadCloser, session, version string) (wire.Message, error) {
	last := ""
	for resumed := 0; ; resumed++ {
		events := wire.NewEventReader(body, t.limit)
		for {
			ev, err := events.Next()
			if err != nil {
				body.Close()
				var large *wire.ErrTooLarge
				if errors.As(err, &large) {
					return wire.Message{}, tooLarge(t.c.server, err)
				}
				break
			}
			if ev.ID != "" {
				last = ev.ID
			}
			if ev.Retry > 0 {
				k.retry = ev.Retry
			}
			if len(ev.Data) == 0 {
				continue
			}
			t.c.traffic.Add(1)
			msg, err := wire.Scan(ev.Data)
			switch {
			case err != nil:
				t.c.garbage.Add(1)
				t.c.log.Debug("unreadable message", "server", t.c.server, "err", err)
			case msg.IsRequest():
				if err := t.c.handleRequest(msg, k); err != nil {
					body.Close()
					return wire.Message{}, err
				}
			case msg.IsNotification():
				t.c.handleNote(msg, k)
			default:
				if id, ok := wire.Unquote(msg.ID); ok && id == k.id {
					events.Release()
					t.linger.drain(body)
					return msg, nil
				}
			}
		}
		// The stream ended without the answer. A legacy server that numbers its
		// events lets us come back for the rest.
		if last == "" || wire.Modern(version) || ctx.Err() != nil || resumed > 1000 {
			return wire.Message{}, errors.New("the stream ended before the answer")
		}
		next, err := t.resume(ctx, session, version, last, max(k.retry, 10*time.Millisecond))
		if err != nil {
			// Not wrapped: the server took the call itself, so the status says nothing about it.
			return wire.Message{}, fmt.Errorf("the stream ended before the answer and could not be resumed: %v", err)
		}
		body = next
	}
}

// resume opens the rest of a stream that was cut.
func (t *httpTransport) resume(ctx context.Context, session, version, last string, wait time.Duration) (io.ReadCloser, error) {
	select {
	case <-time.After(min(wait, time.Minute)):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	req, err := t.newRequest(ctx, http.MethodGet, session, version, nil)
	if err != nil {
		return nil, err
	}
	req.Header[wire.HeaderLastEvent] = []string{last}
	resp, err := t.ep.Client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		body, _ := readBody(resp, 4<<10)
		return nil, &statusError{code: resp.StatusCode, text: t.c.mask.excerpt(body)}
	}
	return resp.Body, nil
}

// abandon tells a legacy server that the caller no longer waits. In the modern era
// the closed stream says it.
func (t *httpTransport) abandon(ctx context.Context, k *call, version string) {
	if ctx.Err() == nil || wire.Modern(version) || k.req.Method == wire.MethodInitialize {
		return
	}
	params := append(append([]byte(`{"requestId":`), quoted(k.id)...), '}')
	frame := wire.AppendRequest(nil, nil, wire.NoteCancelled, params, nil)
	say := func(wait time.Duration) {
		// Not of the transport's life: the cancellation is sent on closing too.
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		_ = t.send(ctx, frame)
	}
	t.mu.Lock()
	closing := t.life.Err() != nil
	if !closing {
		t.goodbye.Add(1)
	}
	t.mu.Unlock()
	if closing {
		say(closeWait)
		return
	}
	go func() {
		defer t.goodbye.Done()
		say(sendTimeout)
	}()
}

// closeWait bounds the goodbye to a server.
const closeWait = 2 * time.Second

// waitGoodbye waits for cancellations on their way, but not long.
func (t *httpTransport) waitGoodbye() {
	said := make(chan struct{})
	go func() { t.goodbye.Wait(); close(said) }()
	select {
	case <-said:
	case <-time.After(closeWait):
	}
}

func (t *httpTransport) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var status *statusError
	if errors.As(err, &status) {
		return err
	}
	var ours *api.Error
	if errors.As(err, &ours) { // the credential could not be obtained
		return NotSent(ours)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return NotSent(failure(api.KindInfrastructure, t.c.server, true, "can't be reached: %v; %s", op, t.c.mend.Gone))
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return NotSent(failure(api.KindInfrastructure, t.c.server, true, "can't be reached: %v; %s", dns, t.c.mend.Gone))
	}
	return fmt.Errorf("connection broke: %w", stripURL(err))
}

// stripURL takes the *url.Error off, whose text repeats the URL and any secret
// in it.
func stripURL(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, ok := e.(interface{ Timeout() bool }); ok && errors.Unwrap(e) != nil {
			err = errors.Unwrap(e)
		}
	}
	return err
}

// send posts a notification or an answer.
func (t *httpTransport) send(ctx context.Context, frame []byte) error {
	t.c.sending.Add(1)
	defer t.c.sending.Add(-1)
	session, version := t.state()
	req, err := t.newRequest(ctx, http.MethodPost, session, version, frame)
	if err != nil {
		return err
	}
	resp, err := post(t.ep, req, t.c.mask)
	if err != nil {
		return t.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	body, _ := readBody(resp, 4<<10)
	if resp.StatusCode >= 300 {
		return &statusError{code: resp.StatusCode, text: t.c.mask.excerpt(body)}
	}
	return nil
}

// renew makes a new session in place of stale, once for all calls that find it gone.
func (t *httpTransport) renew(ctx context.Context, stale string) error {
	t.mu.Lock()
	if t.session != stale {
		t.mu.Unlock()
		return nil
	}
	if wait := t.renewing; wait != nil {
		t.mu.Unlock()
		select {
		case <-wait:
			return t.renew(ctx, stale)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	done := make(chan struct{})
	t.renewing = done
	t.mu.Unlock()
	err := t.handshake(ctx)
	lost := err == nil && t.c.forgot != nil && t.c.forgot() // before any call uses the new session
	t.mu.Lock()
	if lost {
		t.lost = stale
	}
	t.renewing = nil
	t.mu.Unlock()
	close(done)
	if err == nil {
		t.c.resubscribe(ctx, t.c.listen.subscribed())
	}
	if err != nil {
		return fmt.Errorf("the server forgot the session and refused a new one: %w", err)
	}
	t.unproven.Store(false)
	if t.c.renewed != nil {
		t.c.renewed()
	}
	t.c.listen.restart(t.c)
	// The server was probably restarted.
	for _, note := range []string{wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged} {
		t.c.events.Note(Origin{}, note, nil)
	}
	return nil
}

// private implements transport. A server without sessions can't tell us from its
// other connections, and sends its messages to all of them.
func (t *httpTransport) private() bool {
	session, _ := t.state()
	return session != ""
}

// wasLost reports whether a server forgot a session with calls. A call that was
// sent there is not repeated in another.
func (t *httpTransport) wasLost(session string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return session != "" && t.lost == session
}

// sessionless reports whether the server of the connection gave us no session, so
// that nothing at the server ends with the connection.
func (c *Conn) sessionless() bool {
	t, ok := c.t.(*httpTransport)
	if !ok {
		return false
	}
	session, _ := t.state()
	return session == ""
}

func (t *httpTransport) done() <-chan struct{} { return t.life.Done() }

func (t *httpTransport) err() error { return nil }

// close ends the legacy session at the server, within closeWait.
func (t *httpTransport) close() {
	session, version := t.state()
	t.mu.Lock()
	t.end()
	t.mu.Unlock()
	t.linger.close()
	t.waitGoodbye()
	if session != "" && !t.stays.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		if req, err := t.newRequest(ctx, http.MethodDelete, session, version, nil); err == nil {
			if resp, err := t.ep.Client.Do(req); err == nil {
				resp.Body.Close()
			}
		}
	}
	t.streams.Wait()
}

func readBody(resp *http.Response, limit int) ([]byte, error) {
	if n := resp.ContentLength; n > int64(limit) {
		return nil, &wire.ErrTooLarge{Limit: limit}
	} else if n >= 0 {
		body := make([]byte, n)
		_, err := io.ReadFull(resp.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	if err == nil && len(body) > limit {
		return nil, &wire.ErrTooLarge{Limit: limit}
	}
	return body, err
}
