package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestFewFiles runs a gateway that may have few files open, and connects more clients
// than that: it said so at its start, and still starts servers for connected clients.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	program, err := stateServer()
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "servers:\n"+yamlServer("box", program, []string{"-dir", t.TempDir()}))
	g.program = filepath.Join(t.TempDir(), "tine")
	if err := os.WriteFile(g.program, []byte("#!/bin/sh\nulimit -n 256\nexec "+tineBinary+` "$@"`+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	session := openSession(t, c, api.NewSession{}).ID // the connection stays
	for range 300 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	programShelf("box").mustPut(t, c, session, "k", "v")
	log, err := os.ReadFile(g.logPath())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "may have 256 files open, so only 128 clients") || !strings.Contains(string(log), "LimitNOFILE=") {
		t.Errorf("it does not say that it may have few files open:\n%s", log)
	}
}
