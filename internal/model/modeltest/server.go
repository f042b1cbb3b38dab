// Package modeltest stands in for language models in tests: a scripted endpoint that
// speaks as Anthropic's Messages API and as OpenAI's Chat Completions, and a scripted
// program claude.
package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Reply is what the endpoint answers to one request. The zero value is an empty
// message.
type Reply struct {
	Text     string
	Thinking string // a block before the text, for Anthropic's format
	Calls    []Call
	Stop     string // end, length, tools or refusal; by default tools if there are calls
	Usage    Usage

	// Status makes the answer an error, with these fields.
	Status  int
	Type    string
	Code    string
	Message string
	Header  map[string]string

	Body string // is sent as it is, with the status 200 and the Content-Type of Header
	Huge int    // adds so many bytes to the text, and sends as many as the client takes
	// Cut ends the connection in the midst of the text. Fault sends an error of that type
	// instead, and Hang sends nothing more until the client leaves.
	Cut   bool
	Fault string
	Hang  bool

	// Check looks at the request; what it returns fails the test.
	Check func(r Request) error
}

// A Call is a tool call of the model. Arguments may be no JSON.
type Call struct{ ID, Name, Arguments, Extra string }

// Usage is reported with a reply. None leaves it out.
type Usage struct {
	Input, Output, CacheRead, CacheWrite int64
	None                                 bool
}

// A Request is what the endpoint was asked.
type Request struct {
	Path   string
	Header http.Header
	Body   json.RawMessage
}

// Key is the key that came with the request.
func (r Request) Key() string {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		return key
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// Decode reads the body.
func (r Request) Decode(t testing.TB, into any) {
	t.Helper()
	if err := json.Unmarshal(r.Body, into); err != nil {
		t.Fatalf("body of the request: %v", err)
	}
}

// A Server is the endpoint.
type Server struct {
	// URL is the base URL for Anthropic. ChatURL is the one for OpenAI.
	URL, ChatURL string
	// Hung gets a value when a reply hangs, and Left one when its client leaves.
	Hung, Left chan struct{}

	t      testing.TB
	client *http.Client

	choose func(r Request) Reply // nil for the script

	messages atomic.Int64 // sent so far

	mu       sync.Mutex
	script   []Reply
	requests []Request
}

// New starts an endpoint on the loopback interface that answers with the replies, one
// a request. A request too many fails the test.
func New(t testing.TB, script ...Reply) *Server { return newServer(t, script).listen() }

// Play starts an endpoint whose replies a function chooses, for conversations that go on
// beside each other. Several requests may call it at once.
func Play(t testing.TB, choose func(r Request) Reply) *Server {
	s := newServer(t, nil)
	s.choose = choose
	return s.listen()
}

func (s *Server) listen() *Server {
	h := httptest.NewServer(s)
	s.URL, s.client = h.URL, h.Client()
	s.ChatURL = s.URL + "/v1"
	s.t.Cleanup(func() {
		s.client.CloseIdleConnections()
		h.Close()
	})
	return s
}

// InMemory is New without a network, for bubbles of testing/synctest. Only Client
// reaches it.
func InMemory(t testing.TB, script ...Reply) *Server {
	s := newServer(t, script)
	l := newPipes()
	h := &http.Server{Handler: s}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Serve(l)
	}()
	s.URL, s.ChatURL = "http://model.test", "http://model.test/v1"
	transport := &http.Transport{DialContext: l.dial}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		h.Close()
		<-done
	})
	return s
}

func newServer(t testing.TB, script []Reply) *Server {
	return &Server{t: t, script: script, Hung: make(chan struct{}, 64), Left: make(chan struct{}, 64)}
}

// Client reaches the endpoint.
func (s *Server) Client() *http.Client { return s.client }

// Add appends to the script.
func (s *Server) Add(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, replies...)
}

// Requests returns what was asked so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// next records a request and takes the reply to it.
func (s *Server) next(r Request) (Reply, bool) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	if s.choose != nil {
		return s.choose(r), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.script) == 0 {
		return Reply{}, false
	}
	reply := s.script[0]
	s.script = s.script[1:]
	return reply, true
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	chat := strings.HasSuffix(r.URL.Path, "/chat/completions")
	if !chat && !strings.HasSuffix(r.URL.Path, "/v1/messages") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	req := Request{Path: r.URL.Path, Header: r.Header.Clone(), Body: body}
	reply, ok := s.next(req)
	if !ok {
		s.t.Errorf("a request to the scripted model that is not in its script: %s", body)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if reply.Check != nil {
		if err := reply.Check(req); err != nil {
			s.t.Errorf("request to the scripted model: %v", err)
		}
	}
	for name, value := range reply.Header {
		w.Header().Set(name, value)
	}
	switch {
	case reply.Status != 0:
		s.fail(w, reply)
		return
	case reply.Body != "":
		io.WriteString(w, reply.Body)
		return
	}
	var asked struct {
		Model         string
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		s.t.Errorf("the scripted model was sent no JSON: %v", err)
	}
	e := &exchange{Server: s, w: w, r: r, reply: reply, model: asked.Model, id: fmt.Sprintf("msg_%d", s.messages.Add(1))}
	switch {
	case chat && asked.Stream:
		e.streamChat(asked.StreamOptions.IncludeUsage)
	case chat:
		e.json(e.wholeChat())
	case asked.Stream:
		e.streamMessage()
	default:
		e.json(e.wholeMessage())
	}
}

func (s *Server) fail(w http.ResponseWriter, r Reply) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.Status)
	json.NewEncoder(w).Encode(object{"type": "error", "error": object{"type": r.Type, "code": r.Code, "message": r.Message}})
}

type (
	object = map[string]any
	list   = []any
)

// An exchange is one request and its reply.
type exchange struct {
	*Server
	w     http.ResponseWriter
	r     *http.Request
	reply Reply
	model string
	id    string // of the message: one that comes twice is the same message to Claude Code
}

func (e *exchange) json(v any) {
	if e.reply.Hang || e.reply.Cut {
		e.w.WriteHeader(http.StatusOK)
		io.WriteString(e.w, "{")
		e.broken()
		return
	}
	e.w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(e.w).Encode(v)
}

// event sends one event of a stream. It reports false if the client has left.
func (e *exchange) event(name string, v any) bool {
	data, err := json.Marshal(v)
	if err != nil {
		e.t.Errorf("event of the scripted model: %v", err)
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	_, err = fmt.Fprintf(e.w, "%sdata: %s\n\n", name, data)
	e.w.(http.Flusher).Flush()
	return err == nil
}

// pieces sends the text in pieces by send, and ends the stream early if the script
// says so. It reports whether the stream goes on.
func (e *exchange) pieces(send func(text string) bool) bool {
	broken := e.reply.Cut || e.reply.Hang || e.reply.Fault != ""
	half := len(e.reply.Text) / 2
	for _, piece := range []string{e.reply.Text[:half], e.reply.Text[half:]} {
		if piece != "" && !send(piece) {
			return false
		}
		if broken {
			return e.broken()
		}
	}
	const chunk = 1 << 10
	for sent := 0; sent < e.reply.Huge; sent += chunk {
		if !send(strings.Repeat("x", chunk)) {
			return false
		}
	}
	return true
}

// broken ends a reply that is not complete. It always reports false.
func (e *exchange) broken() bool {
	switch {
	case e.reply.Hang:
		e.w.(http.Flusher).Flush()
		e.Hung <- struct{}{}
		<-e.r.Context().Done()
		e.Left <- struct{}{}
	case e.reply.Fault != "":
		e.event("error", object{"type": "error", "error": object{"type": e.reply.Fault, "message": e.reply.Message}})
		return false
	default:
		e.w.(http.Flusher).Flush()
	}
	panic(http.ErrAbortHandler)
}
