package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// A scripted is an MCP server that answers with the bytes it was given and keeps
// those it got. It speaks one era and decodes nothing but the method.
type scripted struct {
	*httptest.Server
	modern bool
	caps   string

	mu      sync.Mutex
	got     []received
	answers map[string]answer
	replies map[string]chan received
	hellos  int
	tap     http.HandlerFunc // takes GET requests when set
}

// A received is one message as it came.
type received struct {
	message
	header http.Header
}

// An answer writes the answer to one request.
type answer func(w http.ResponseWriter, r *http.Request, in received)

const everyCapability = `{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"prompts":{"listChanged":true},"completions":{},"logging":{}}`

// script starts a server of one era. Results maps methods to raw results.
func script(t testing.TB, modern bool, results map[string]string) *scripted {
	t.Helper()
	s := &scripted{modern: modern, caps: everyCapability, answers: map[string]answer{}, replies: map[string]chan received{}}
	for method, result := range results {
		s.answers[method] = result1(result)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// result1 answers with a raw result.
func result1(result string) answer {
	return func(w http.ResponseWriter, _ *http.Request, in received) {
		writeResult(w, in, result)
	}
}

func writeResult(w http.ResponseWriter, in received, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, result)
}

func writeFailure(w http.ResponseWriter, status int, in received, code int, msg string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	id := string(in.ID)
	if id == "" {
		id = "null"
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, msg)
}

// events starts an event stream and returns what sends one message on it.
func events(w http.ResponseWriter) func(msg string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	return func(msg string) {
		fmt.Fprintf(w, "event: message\ndata: %s\n\n", msg)
		_ = http.NewResponseController(w).Flush()
	}
}

// on sets the answer to a method.
func (s *scripted) on(method string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[method] = a
}

// reply is where the answer to a request of the server's own arrives.
func (s *scripted) reply(id string) <-chan received {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan received, 1)
	s.replies[id] = ch
	return ch
}

func (s *scripted) serve(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		s.mu.Lock()
		tap := s.tap
		s.mu.Unlock()
		if tap == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		tap(w, r)
		return
	case http.MethodDelete:
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	in := received{header: r.Header.Clone()}
	if in.message, err = parseMessage(body); err != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.got = append(s.got, in)
	a := s.answers[in.Method]
	if reply := s.replies[string(in.ID)]; in.Method == "" && reply != nil {
		delete(s.replies, string(in.ID))
		reply <- in
	}
	s.mu.Unlock()
	switch {
	case a != nil:
		a(w, r, in)
	case in.Method == "server/discover" && s.modern:
		writeResult(w, in, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+s.caps+
			`,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}},"ttlMs":0,"cacheScope":"public"}`)
	case in.Method == "initialize" && !s.modern:
		s.mu.Lock()
		s.hellos++
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", s.hellos))
		s.mu.Unlock()
		writeResult(w, in, `{"protocolVersion":"2025-11-25","capabilities":`+s.caps+`,"serverInfo":{"name":"scripted","version":"1"}}`)
	case in.ID == nil || in.Method == "":
		w.WriteHeader(http.StatusAccepted)
	case in.Method == "ping" || in.Method == "logging/setLevel":
		writeResult(w, in, `{}`)
	case s.modern:
		writeFailure(w, http.StatusNotFound, in, -32601, "method not found: "+in.Method)
	case in.header.Get("Mcp-Session-Id") == "":
		http.Error(w, "no session", http.StatusBadRequest)
	default:
		writeFailure(w, http.StatusOK, in, -32601, "method not found: "+in.Method)
	}
}

// of returns what came of a method.
func (s *scripted) of(method string) []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.got), func(r received) bool { return r.Method != method })
}

// last returns the newest message of a method.
func (s *scripted) last(t testing.TB, method string) received {
	t.Helper()
	all := s.of(method)
	if len(all) == 0 {
		t.Fatalf("the server got no %s", method)
	}
	return all[len(all)-1]
}
