// Package upstream holds the connections to instances: the raw relay, both protocol
// eras, and restarts. A Caller makes one call; a policy is a Caller around a
// Caller.
//
// # From the outside in
//
//	Upstream   one server as one session sees it: starts, restarts, adopts
//	Conn       one MCP link to a running instance, after its handshake
//	transport  how messages travel: frames of a stream, or HTTP exchanges
//
// Messages that are only passed on are not decoded here.
package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// A Caller sends one request to a server and returns the server's answer. Its
// error is always an *api.Error and means that there was no answer; an error
// that the server itself sent is in the Result. Calls may run at once.
type Caller interface {
	Call(ctx context.Context, req *Request) (*Result, error)
}

// A Request is one request on its way to a server.
type Request struct {
	Method string
	Params wire.Params
	// Edits are made to Params.Raw on the way out, such as a tool's own name in
	// place of the prefixed one.
	Edits []wire.Edit
	// Name is the tool, prompt or resource as the server knows it.
	Name string
	// Header has the caller's Mcp-Param-* headers; nil where the caller does
	// not repeat its arguments in headers.
	Header http.Header
	Client *Client
	Peer   Peer // nil if nothing can be sent back

	// Who is the principal that calls; empty if unknown. Session is the session it
	// calls in, and Run what the token that it showed was made for; empty for none.
	Who     string
	Session string
	Run     string
	// Trace is the W3C traceparent to hand to the server, and TraceState the
	// tracestate; empty to leave what the params say.
	Trace      string
	TraceState string

	// Caller is a handle on the caller, for a server inside the gateway that acts
	// for its callers. It replaces the client's own value, on the way out only:
	// nothing that is kept or written down has it.
	Caller string

	// Within is the name of the call with which a server asks the gateway for
	// something meanwhile. It goes out as Caller does.
	Within string

	// Call is the call's id in the journal, set by the package record.
	Call string

	deadline *deadline // of the current attempt; nil without
}

// A Result is a server's answer, raw: one of Result and Error is set.
type Result struct {
	Result []byte
	Error  []byte
	// Events says that the server answered with an event stream. A client that
	// takes both forms gets the one the server chose.
	Events bool
	// RetryAfter is how many seconds the caller should wait before it tries
	// again; zero where that is not known.
	RetryAfter int
	// Retry is set when the server sent its client away, to come back for the
	// answer after that long, and the answer was not there then.
	Retry time.Duration
}

// Client is what a connection needs to know of the caller.
type Client struct {
	// Key is the same for all calls of one client connection. Calls of a client
	// without a connection each have their own. Empty for the gateway itself.
	Key      string
	Modern   bool
	Info     []byte // clientInfo, raw; nil when unknown
	Caps     []byte // capabilities, raw; nil when unknown
	LogLevel string // the level that the client asked for; empty for nothing
}

// A Peer is the client's side of one call.
type Peer interface {
	// Note passes on a notification that belongs to the call. It must not block
	// for long.
	Note(method string, params []byte)
	// Ask passes on a request of the server and waits for the client's answer.
	Ask(ctx context.Context, method string, params []byte) Reply
}

// A Reply is a client's answer to a server's request, raw: one of the two is
// set.
type Reply struct {
	Result []byte
	Error  []byte
}

// Refuse makes the reply that turns a server's request down. An elicitation is
// declined, which servers handle better than an error.
func Refuse(method, reason string) Reply {
	if method == wire.MethodElicit {
		return Reply{Result: []byte(`{"action":"decline"}`)}
	}
	return Reply{Error: wire.AppendError(nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: reason})}
}

// A Watcher receives what a server sends outside of any call.
type Watcher interface {
	// Note passes a notification on: to the client that it is from, or to all where
	// it is from none in particular, as changes of lists are.
	Note(from Origin, method string, params []byte)
	// Ask is called for a request that belongs to no call, or to one whose client
	// can be asked only here. It reports false when the watcher can't answer for
	// that client.
	Ask(ctx context.Context, from Origin, method string, params []byte) (Reply, bool)
}

// Hello is what a server said in its handshake. It is kept with the instance's
// handle and with a snapshot of its memory, since the handshake is not repeated
// with a server that is adopted or restored.
type Hello struct {
	Version      string          `json:"version"`
	Info         json.RawMessage `json:"info,omitempty"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Instructions json.RawMessage `json:"instructions,omitempty"`
	// Transport is how a server that is reached over HTTP speaks, streamable or
	// sse, and Session the id that a legacy one gave us.
	Transport string `json:"transport,omitempty"`
	Session   string `json:"session,omitempty"`
	// Asked are the requests of the server that had no answer yet when its memory
	// was stored: a copy of it would wait for ever.
	Asked []Asked `json:"asked,omitempty"`
	// Uncalled says that no call was sent to the instance yet, so that nothing is
	// lost when it ends. Of an instance that several sessions use, Callers are those
	// that called it; AllCalled stands for more than are noted.
	Uncalled  bool     `json:"uncalled,omitempty"`
	Callers   []string `json:"callers,omitempty"`
	AllCalled bool     `json:"all_called,omitempty"`
}

// Asked is a request of a server that was not answered.
type Asked struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// Modern reports whether the server speaks the stateless era.
func (h *Hello) Modern() bool { return wire.Modern(h.Version) }

// Can reports whether the server declared a capability.
func (h *Hello) Can(path ...string) bool {
	at, err := wire.Find(h.Capabilities, path...)
	if err != nil || !at.Ok() {
		return false
	}
	v := string(at.Of(h.Capabilities))
	return v != "false" && v != "null"
}

// failure is an error about a server. Its message begins with the server's name,
// and repeats it nowhere.
func failure(kind api.Kind, server string, retryable bool, format string, args ...any) *api.Error {
	name := fmt.Sprintf("server %q", server)
	message := strings.TrimPrefix(fmt.Sprintf(format, args...), name)
	e := &api.Error{
		Kind: kind, Server: server, Retryable: retryable,
		Message: name + ": " + strings.TrimLeft(message, ": "),
	}
	for _, arg := range args {
		if err, ok := arg.(error); ok && e.Words == "" {
			e.Words = driver.Words(err)
		}
	}
	return e
}

// Reason is an error's message without the name of its server, for where that
// is said already.
func Reason(e *api.Error) string {
	return strings.TrimPrefix(e.Message, fmt.Sprintf("server %q: ", e.Server))
}
