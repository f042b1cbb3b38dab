package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

func TestNeverSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	l.Close()
	resp, refused := http.Get(closed)
	if refused == nil {
		resp.Body.Close()
		t.Fatal("a program listens on a port that was just freed")
	}
	post := func(op string, err error) error {
		return &url.Error{Op: "Post", URL: closed, Err: &net.OpError{Op: op, Net: "tcp", Err: err}}
	}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"refused here", refused, true},
		{"refused on Windows", post("dial", os.NewSyscallError("connectex", errors.New("no connection could be made"))), true},
		{"broken while it was sent", post("write", os.NewSyscallError("write", errors.New("broken pipe"))), false},
		{"broken before the answer", &url.Error{Op: "Post", URL: closed, Err: io.EOF}, false},
		{"a text that looks like one", errors.New("connect: connection refused"), false},
	} {
		if got := neverSent(tt.err); got != tt.want {
			t.Errorf("%s: %v is %v", tt.name, tt.err, got)
		}
	}
}

// A second handshake names the client of the first, so that the gateway can
// refuse it, and opens no second stream.
func TestBridgeSecondInitialize(t *testing.T) {
	hellos, listens := make(chan string, 8), make(chan string, 8)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Mcp-Session-Id")
		switch {
		case r.Method == http.MethodGet:
			listens <- id
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.Method != http.MethodPost:
		case id == "":
			hellos <- id
			w.Header().Set("Mcp-Session-Id", "first")
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
		default:
			hellos <- id
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"initialized already"}}`)
		}
	}))
	defer ts.Close()
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}` + "\n"
	var out bytes.Buffer
	b, err := newBridge(func() (endpoint, error) { return endpointOf(&gatewayFile{URL: ts.URL}, "", stdioFlags{}) }, &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.run(t.Context(), strings.NewReader(hello+hello)); err != nil {
		t.Fatal(err)
	}
	if first, second := <-hellos, <-hellos; first != "" || second != "first" {
		t.Errorf("the handshakes name the clients %q and %q", first, second)
	}
	if n := len(listens); n > 1 {
		t.Errorf("%d streams were opened", n)
	}
	if !strings.Contains(out.String(), "initialized already") || b.version != "2025-11-25" {
		t.Errorf("version %q, written %s", b.version, out.String())
	}
}

// TestBridgeTellsThatTheGatewayIsGone answers a call whose gateway was killed as a gateway
// fails: it says whose failure it is, and that the call may have taken effect.
func TestBridgeTellsThatTheGatewayIsGone(t *testing.T) {
	ts := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer ts.Close()
	const unknown = "it is not known whether the request took effect"
	for name, tt := range map[string]struct {
		flags  stdioFlags
		method string
		want   []string
	}{
		"a result":      {stdioFlags{}, "tools/call", []string{`"result":`, `"isError":true`, `"tine/error":{"kind":"infrastructure"`, unknown}},
		"an error":      {stdioFlags{errors: "protocol"}, "tools/call", []string{`"error":`, `"code":-31000`, `"kind":"infrastructure"`, unknown}},
		"another error": {stdioFlags{}, "prompts/get", []string{`"error":`, `"kind":"infrastructure"`, unknown}},
	} {
		var out bytes.Buffer
		b, err := newBridge(func() (endpoint, error) { return endpointOf(&gatewayFile{URL: ts.URL}, "", tt.flags) }, &out)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.run(t.Context(), strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"`+tt.method+`","params":{"name":"x"}}`+"\n")); err != nil {
			t.Fatal(err)
		}
		testkit.Has(t, name, out.String(), append(tt.want, `"id":7`)...)
	}
}

// TestBridgeTriesTheNewToken has another request find the next gateway while one is on its
// way to it with the token of the gateway before.
func TestBridgeTriesTheNewToken(t *testing.T) {
	var b *bridge
	var gateway atomic.Pointer[gatewayFile]
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer new" {
			b.find()
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	defer ts.Close()
	gateway.Store(&gatewayFile{URL: ts.URL, Token: "old"})
	var out bytes.Buffer
	var err error
	b, err = newBridge(func() (endpoint, error) { return endpointOf(gateway.Load(), "", stdioFlags{}) }, &out)
	if err != nil {
		t.Fatal(err)
	}
	gateway.Store(&gatewayFile{URL: ts.URL, Token: "new"})
	if err := b.run(t.Context(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"result":{}`) {
		t.Errorf("answered %s", out.String())
	}
}
