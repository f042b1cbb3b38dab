package nativetest

import (
	"context"
	"os/exec"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The two protocol eras a native server must serve.
const (
	Legacy = "2025-11-25"
	Modern = "2026-07-28"
)

// Eras lists both, for tests that run in each.
func Eras() []string { return []string{Legacy, Modern} }

// Connect connects a new client to a server in this process, in one era. The
// session is closed with the test.
func Connect(t testing.TB, s *mcp.Server, era string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	st, ct := mcp.NewInMemoryTransports()
	ss, err := s.Connect(context.Background(), st, nil)
	if err != nil {
		t.Fatalf("connect the server: %v", err)
	}
	cs := dial(t, ct, era, opts)
	t.Cleanup(func() {
		cs.Close()
		ss.Wait()
	})
	return cs
}

// ConnectReference starts a reference server and connects a new client to it.
// Both end with the test.
func ConnectReference(t testing.TB, cmd *exec.Cmd, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	cs := dial(t, &mcp.CommandTransport{Command: cmd}, Legacy, opts)
	t.Cleanup(func() {
		cmd.Process.Kill() // some don't end with their input, and Close would wait for that
		cs.Close()
	})
	return cs
}

func dial(t testing.TB, tr mcp.Transport, era string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "nativetest", Version: "1"}, opts)
	cs, err := c.Connect(t.Context(), tr, &mcp.ClientSessionOptions{ProtocolVersion: era})
	if err != nil {
		t.Fatalf("connect the client: %v", err)
	}
	if got := cs.InitializeResult().ProtocolVersion; got != era {
		t.Fatalf("negotiated %s, want %s", got, era)
	}
	return cs
}
