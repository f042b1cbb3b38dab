package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// crashing is a server that writes 20 lines and a secret before it dies of a call.
const crashing = `
import json, os, sys
def answer(m, key, value):
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], key: value}), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    if m["method"] == "initialize":
        answer(m, "result", {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "c", "version": "1"}})
    elif m["method"] == "tools/list":
        answer(m, "result", {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("die", "fine")]})
    elif m["method"] == "tools/call" and m["params"]["name"] == "fine":
        answer(m, "result", {"content": [{"type": "text", "text": "fine"}]})
    elif m["method"] == "tools/call":
        for i in range(20):
            print("line", i, file=sys.stderr)
        print("the key is", os.environ["KEY"], file=sys.stderr)
        sys.exit(7)
    else:
        answer(m, "error", {"code": -32601, "message": "no such method"})
`

// TestFailingServersAreSeen holds what the log, the errors and tine logs say of
// servers that fail, each in its own way.
func TestFailingServersAreSeen(t *testing.T) {
	t.Parallel()
	const secret = "sk-live-4711-aaaabbbbcccc"
	dir := t.TempDir()
	script := filepath.Join(dir, "crash.py")
	if err := os.WriteFile(script, []byte(crashing), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "mcp", "server"), 0o755); err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, fmt.Sprintf(`servers:
  cat: {command: cat}
  echo: {command: echo, args: [Hello, %[1]s], env: {KEY: %[1]s}}
  crash: {command: python3, args: [%[2]s], env: {KEY: %[1]s}}
  away: {url: "http://127.0.0.1:1/mcp"}
  net: {command: python3, args: [-c, "import socket; socket.getaddrinfo('example.com', 80)"], sandbox: true}
  hid: {command: python3, args: [-c, "open('/srv/some where/data.txt')"], sandbox: true}
  old: {command: python3, args: [-c, "from mcp.server.fastmcp import FastMCP"], env: {PYTHONPATH: %[3]q}}
`, secret, script, dir))
	s := mustOpen(t, g.url+"/mcp")
	fails := func(tool string, kind api.Kind, want ...string) {
		t.Helper()
		r, err := s.call(t.Context(), tool, map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		e := r.tineError(t)
		if e == nil || e.Kind != kind {
			t.Fatalf("%s is %+v", tool, r)
		}
		for _, w := range want {
			if !strings.Contains(e.Message, w) {
				t.Errorf("%s: %q, want %q", tool, e.Message, w)
			}
		}
		if strings.Contains(e.Message, secret) || strings.Count(e.Message, "line ") > 5 {
			t.Errorf("%s says too much: %s", tool, e.Message)
		}
	}
	fails("cat__x", api.KindInfrastructure, "echoes its input; it is not an MCP server")
	fails("echo__x", api.KindInfrastructure, "did not start: exited with status 0", "it wrote `Hello ", "` to standard output, which is not MCP")
	fails("away__x", api.KindInfrastructure, "can't be reached")
	fails("net__x", api.KindInfrastructure, "did not start", "hint: a sandbox has no network", "servers.net.sandbox.network")
	fails("hid__x", api.KindInfrastructure, "did not start", "hint: the sandbox does not show /srv/some where/data.txt", "servers.hid.sandbox.allow_read")
	fails("old__x", api.KindInfrastructure, "did not start", "pip install 'mcp<2'")
	for _, server := range []string{"cat", "echo", "away", "net", "hid", "old"} { // which the log does not repeat
		fails(server+"__x", api.KindInfrastructure)
	}
	fails("crash__die", api.KindLost, "exited with status 7", "line 19", "the key is ****")
	logs := g.mustTine(t, "logs", "crash")
	if !strings.Contains(logs, "line 0\n") || !strings.Contains(logs, "line 19\nthe key is ****") {
		t.Errorf("the log of a server that died: %s", logs)
	}
	if got := s.mustCall(t, "crash__fine", map[string]any{}); got != "fine" {
		t.Errorf("the next one says %q", got)
	}
	if logs := g.mustTine(t, "logs", "net"); !strings.Contains(logs, "gaierror") {
		t.Errorf("the log of a server that did not start: %s", logs)
	}
	show := g.show(t, "net")
	// It may be tried again at the moment, in the background.
	if show.State != api.StateFailed && show.State != api.StateStarting || !strings.HasPrefix(show.Reason, "did not start") || !strings.Contains(show.Words, "hint: ") {
		t.Errorf("it is %+v", show)
	}

	count := func(log, message, server string) (n int) {
		for line := range strings.Lines(log) {
			if strings.Contains(line, `msg="`+message+`"`) && strings.Contains(line, "server="+server+" ") || strings.HasSuffix(strings.TrimSpace(line), `msg="`+message+`" server=`+server) {
				n++
			}
		}
		return n
	}
	if err := eventually(func() error {
		log, err := os.ReadFile(g.logPath())
		if err != nil {
			return final{err}
		}
		for _, server := range []string{"cat", "echo", "away", "net", "hid", "old"} {
			if n := count(string(log), "server fails", server); n != 1 {
				return fmt.Errorf("it is %d times in the log that %s fails", n, server)
			}
		}
		if ended, well := count(string(log), "server ended", "crash"), count(string(log), "server is well again", "crash"); ended != 1 || well != 1 {
			return fmt.Errorf("crash ended %d times and was well again %d times", ended, well)
		}
		if strings.Contains(string(log), secret) || strings.Contains(string(log), "instance is lost") {
			return final{fmt.Errorf("the log says too much: %s", log)}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
