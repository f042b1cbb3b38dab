package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

// Neither idle connections without a token nor unfinished bodies with one keep
// others from the gateway.
func TestConnectionsKeepNobodyOut(t *testing.T) {
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	cfg.Limits.Connections = 10
	cfg.Auth.Tokens = []config.Token{
		{Name: "ada", Token: "ada-token-0123456789", Role: "operator"}, {Name: "bob", Token: "bob-token-0123456789", Role: "viewer"},
	}
	s := runService(t, cfg, t.TempDir())
	dial := func(format string, args ...any) *bufio.Reader {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprintf(c, format, args...)
		return bufio.NewReader(c)
	}
	status := func(r *bufio.Reader) int {
		t.Helper()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	get := func(token string) int {
		t.Helper()
		r := dial("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n", token)
		n := status(r)
		_, _ = io.Copy(io.Discard, r) // its end says that the connection is held no more
		return n
	}
	for range 30 {
		if n := status(dial("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")); n != http.StatusOK {
			t.Fatalf("health: status %d", n)
		}
		dial("GET /healthz HTTP/1.1\r\n")
		dial("")
	}
	if n := get("bob-token-0123456789"); n != http.StatusOK {
		t.Errorf("bob, among idle connections: status %d", n)
	}
	refused := 0
	for range 20 {
		r := dial("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ada-token-0123456789\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
		switch n := status(r); n { // 100 once the gateway reads the body
		case http.StatusContinue:
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Errorf("ada: status %d", n)
		}
	}
	if refused != 12 {
		t.Errorf("of 20 requests of ada without a body %d are refused, want 12", refused)
	}
	if n := get("bob-token-0123456789"); n != http.StatusOK {
		t.Errorf("bob, among unfinished bodies: status %d", n)
	}
	if n := get(s.token); n != http.StatusOK {
		t.Errorf("the operator of the machine, among unfinished bodies: status %d", n)
	}
	if n := get("ada-token-0123456789"); n != http.StatusTooManyRequests {
		t.Errorf("ada, who has her share: status %d", n)
	}
	// The answer does not wait for the rest of a body: meanwhile the connection could be
	// closed for another.
	for range 4 {
		if n := status(dial("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ada-token-0123456789\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}")); n != http.StatusTooManyRequests {
			t.Errorf("ada, who has her share, with half of a body: status %d", n)
		}
	}
}
