package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/wire"
)

// A talk is a conversation with an MCP server over streamable HTTP, of either
// era, in which results stay the bytes that they are. It asks and is not asked:
// it claims no capability.
type talk struct {
	web   *web
	url   *url.URL
	limit int
	next  atomic.Int64

	mu      sync.Mutex // held while hands are shaken
	greeted bool
	manner  manner
}

// manner is how one speaks to a server that was greeted.
type manner struct {
	modern  bool
	session string
	version string
}

func newTalk(w *web, u *url.URL, limit int) *talk { return &talk{web: w, url: u, limit: limit} }

var (
	helloParams = []byte(`{"protocolVersion":"` + wire.LatestLegacy + `","capabilities":{},"clientInfo":{"name":"tine","version":"1"}}`)
	modernMeta  = []byte(`{"` + wire.MetaVersion + `":"` + wire.Latest + `","` + wire.MetaClientInfo + `":{"name":"tine","version":"1"},"` + wire.MetaClientCaps + `":{}}`)
)

// request asks the server and returns the result. An error that the server
// answers with is a *wire.Error. The key is that of a request that may be
// repeated; empty for none.
func (t *talk) request(ctx context.Context, method string, params []byte, key string) ([]byte, error) {
	for tries := 0; ; tries++ {
		how, err := t.greet(ctx)
		if err != nil {
			return nil, err
		}
		result, _, err := t.send(ctx, how, method, params, key)
		var f *fault
		// It does not know our session any more, and so did nothing.
		if how.session != "" && tries == 0 && errors.As(err, &f) && f.status == http.StatusNotFound {
			t.mu.Lock()
			if t.manner == how {
				t.greeted, t.manner = false, manner{}
			}
			t.mu.Unlock()
			continue
		}
		return result, err
	}
}

// greet shakes hands, where that was not done yet: the old way, which nearly
// every server knows, or the new one. It is bounded, as others wait for it.
func (t *talk) greet(ctx context.Context) (manner, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.greeted {
		return t.manner, nil
	}
	ctx, cancel := t.web.within(ctx)
	defer cancel()
	result, session, err := t.send(ctx, manner{}, wire.MethodInitialize, helloParams, "")
	var rpc *wire.Error
	var f *fault
	if errors.As(err, &rpc) || errors.As(err, &f) && f.status >= 400 && f.status < 500 && !f.locked() && !f.passing() {
		how := manner{modern: true, version: wire.Latest}
		if _, _, modernErr := t.send(ctx, how, wire.MethodDiscover, nil, ""); modernErr == nil {
			t.greeted, t.manner = true, how
			return how, nil
		}
	}
	if err != nil {
		return manner{}, err
	}
	how := manner{session: session, version: wire.FindString(result, "protocolVersion")}
	if !wire.Known(how.version) {
		return manner{}, &fault{what: "POST " + shown(t.url), status: http.StatusOK, err: fmt.Errorf("it wants protocol %.40q, which Tine does not speak", how.version)}
	}
	if err := t.notify(ctx, how, wire.AppendRequest(nil, nil, wire.NoteInitialized, nil, nil)); err != nil {
		return manner{}, err
	}
	t.greeted, t.manner = true, how
	return how, nil
}

// send makes one exchange. The session is that of the answer.
func (t *talk) send(ctx context.Context, how manner, method string, params []byte, key string) (result []byte, session string, err error) {
	if len(params) == 0 {
		params = []byte("{}")
	}
	id := "t" + strconv.FormatInt(t.next.Add(1), 10)
	header := make(http.Header)
	if key != "" {
		header.Set(headerKey, key)
	}
	if how.modern {
		params = wire.AppendSpliced(nil, params, []wire.Edit{wire.InsertMember(params, 0, "_meta", modernMeta)})
		header.Set(wire.HeaderMethod, method)
		if name := wire.FindString(params, "name"); name != "" && method == wire.MethodCallTool {
			header.Set(wire.HeaderName, wire.EncodeHeader(name))
		}
	}
	resp, err := t.do(ctx, how, wire.AppendRequest(nil, wire.Quote(id), method, params, nil), header)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	msg, err := t.answer(ctx, how, id, resp)
	if err != nil {
		return nil, "", err
	}
	if msg.Error != nil {
		e := wire.ParseError(msg.Error)
		e.Message, e.Data = t.web.mask.excerpt([]byte(e.Message)), nil
		return nil, "", e
	}
	return msg.Result, resp.Header.Get(wire.HeaderSession), nil
}

// notify sends a message that is not answered.
func (t *talk) notify(ctx context.Context, how manner, frame []byte) error {
	resp, err := t.do(ctx, how, frame, make(http.Header))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode > 299 {
		return t.refused(resp, nil, nil)
	}
	return nil
}

// do posts a message.
func (t *talk) do(ctx context.Context, how manner, frame []byte, header http.Header) (*http.Response, error) {
	var reached atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, t.url.String(), bytes.NewReader(frame))
	if err != nil {
		return nil, &fault{what: "POST " + shown(t.url), err: plain(err), unsent: true}
	}
	for name, values := range t.web.header {
		header[name] = values
	}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	if how.session != "" {
		header.Set(wire.HeaderSession, how.session)
	}
	if how.version != "" {
		header.Set(wire.HeaderVersion, how.version)
	}
	req.Header = header
	resp, err := t.web.http.Do(req)
	if err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &fault{what: "POST " + shown(t.url), err: plain(err), unsent: !reached.Load()}
	}
	return resp, nil
}

// refused is the fault of an answer.
func (t *talk) refused(resp *http.Response, body []byte, err error) error {
	return &fault{what: "POST " + shown(t.url), status: resp.StatusCode, excerpt: t.web.mask.excerpt(body), kind: kindOf(body), after: retryAfter(resp.Header), err: err}
}

// answer reads the answer with an id, out of a body or a stream of events.
func (t *talk) answer(ctx context.Context, how manner, id string, resp *http.Response) (wire.Message, error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media == "text/event-stream" && resp.StatusCode == http.StatusOK {
		return t.events(ctx, how, id, resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(t.limit)+1))
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return wire.Message{}, &fault{what: "POST " + shown(t.url), status: resp.StatusCode, err: fmt.Errorf("the answer broke off: %w", err), torn: true}
	}
	if len(body) > t.limit {
		return wire.Message{}, t.refused(resp, nil, fmt.Errorf("the answer is larger than %d bytes", t.limit))
	}
	msg, err := wire.Scan(body)
	if err == nil && msg.IsResponse() && (resp.StatusCode == http.StatusOK || msg.Error != nil && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests) {
		if got, _ := wire.Unquote(msg.ID); got == id || msg.ID == nil && msg.Error != nil {
			return msg, nil
		}
		err = errors.New("which answers another request")
	}
	if resp.StatusCode == http.StatusOK {
		if err == nil {
			err = errors.New("which is no answer")
		}
		return wire.Message{}, t.refused(resp, body, fmt.Errorf("which is not MCP: %w", err))
	}
	return wire.Message{}, t.refused(resp, body, nil)
}

func (t *talk) events(ctx context.Context, how manner, id string, resp *http.Response) (wire.Message, error) {
	events := wire.NewEventReader(resp.Body, t.limit)
	for {
		ev, err := events.Next()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return wire.Message{}, &fault{what: "POST " + shown(t.url), status: resp.StatusCode, err: fmt.Errorf("the stream ended before the answer: %w", err), torn: !errors.As(err, new(*wire.ErrTooLarge))}
		}
		msg, err := wire.Scan(ev.Data)
		switch {
		case len(ev.Data) == 0 || err != nil || msg.IsNotification():
		case msg.IsRequest():
			if err := t.notify(ctx, how, refusalOf(msg)); err != nil {
				return wire.Message{}, err
			}
		default:
			if got, _ := wire.Unquote(msg.ID); got == id {
				return wire.Message{Result: bytes.Clone(msg.Result), Error: bytes.Clone(msg.Error)}, nil
			}
		}
	}
}

// refusalOf answers what a server asks of us: that we are here, and nothing else.
func refusalOf(msg wire.Message) []byte {
	if msg.Method == wire.MethodPing {
		return wire.AppendResult(nil, msg.ID, []byte("{}"))
	}
	return wire.AppendFailure(nil, msg.ID, wire.AppendError(nil, &wire.Error{Code: wire.CodeMethodNotFound, Message: "not supported"}))
}

// goodbye is how long a session may take to end.
const goodbye = 2 * time.Second

// close ends the session at the server, kindly but not for long.
func (t *talk) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.manner.session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, t.url.String(), nil)
	if err != nil {
		return
	}
	for name, values := range t.web.header {
		req.Header[name] = values
	}
	req.Header.Set(wire.HeaderSession, t.manner.session)
	req.Header.Set(wire.HeaderVersion, t.manner.version)
	if resp, err := t.web.http.Do(req); err == nil {
		resp.Body.Close()
	}
	t.greeted, t.manner = false, manner{}
}

// textOf takes the JSON out of a tool's result: its first text, or what it has
// as structured content.
func textOf(result []byte) (text []byte, isError bool) {
	if at, err := wire.Find(result, "isError"); err == nil {
		isError = string(at.Of(result)) == "true"
	}
	if at, err := wire.Find(result, "content"); err == nil && at.Ok() {
		var items []json.RawMessage
		if json.Unmarshal(at.Of(result), &items) == nil && len(items) > 0 && wire.FindString(items[0], "type") == "text" {
			if s := wire.FindString(items[0], "text"); s != "" {
				return []byte(s), isError
			}
		}
	}
	at, _ := wire.Find(result, "structuredContent")
	return bytes.Clone(at.Of(result)), isError
}
