package upstream_test

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream"
)

func TestHints(t *testing.T) {
	box := func(change ...func(*config.Sandbox)) driver.Spec {
		s := driver.Spec{Server: "srv", Command: "uvx", Options: &config.Sandbox{Root: config.RootAllow, Network: config.NetworkNone}}
		for _, c := range change {
			c(driver.Options[config.Sandbox](s))
		}
		return s
	}
	plain := driver.Spec{Server: "srv", Command: "/usr/bin/python3"}
	for name, tt := range map[string]struct {
		spec driver.Spec
		log  string
		want string // none where it is empty
	}{
		"nothing":             {box(), "", ""},
		"an ordinary end":     {box(), "usage: server [-h]", ""},
		"Node.js, a name":     {box(), "Error: getaddrinfo EAI_AGAIN example.com", "servers.srv.sandbox.network: ["},
		"Node.js, an address": {box(), "Error: connect ENETUNREACH 1.1.1.1:443", "servers.srv.sandbox.network: ["},
		"Python, a name":      {box(), "socket.gaierror: [Errno -3] Temporary failure in name resolution", "servers.srv.sandbox.network: ["},
		"Python, an address":  {box(), "OSError: [Errno 101] Network is unreachable", "servers.srv.sandbox.network: ["},
		"Go":                  {box(), "dial tcp: lookup example.com on 127.0.0.1:53: read udp: connection refused", "servers.srv.sandbox.network: ["},
		"listed":              {box(func(s *config.Sandbox) { s.Network, s.Domains = "", []string{"example.com"} }), "EAI_AGAIN", "HTTPS_PROXY"},
		"on the host's":       {box(func(s *config.Sandbox) { s.Network = config.NetworkHost }), "EAI_AGAIN", ""},
		"outside":             {plain, "EAI_AGAIN", ""},

		"Node.js, a file":   {box(), "Error: ENOENT: no such file or directory, open '/srv/data/my file.db'", "does not show /srv/data/my file.db; if it is on this machine, add it, or its folder, to servers.srv.sandbox.allow_read"},
		"Python, a file":    {box(), "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/notes'", "/home/me/notes;"},
		"Python, closed":    {box(), "PermissionError: [Errno 13] Permission denied: '/srv/x'", "/srv/x;"},
		"Python, a script":  {box(), "python3: can't open file '/srv/server.py': [Errno 2] No such file or directory", "/srv/server.py;"},
		"Go, a file":        {box(), "2026/11/17 open /etc/srv.toml: no such file or directory", "/etc/srv.toml;"},
		"the last of two":   {box(), "open /srv/a: no such file or directory\nopen /srv/b: no such file or directory", "/srv/b;"},
		"of its own":        {box(), "ENOENT: no such file or directory, open '/home/user/.cache/x'", ""},
		"of the system":     {box(), "open /usr/share/x: no such file or directory", ""},
		"allowed":           {box(func(s *config.Sandbox) { s.AllowRead = []string{"/srv"} }), "open /srv/x: no such file or directory", ""},
		"beside an allowed": {box(func(s *config.Sandbox) { s.AllowRead = []string{"/srv"} }), "open /srv2/x: no such file or directory", "/srv2/x;"},
		"denied":            {box(func(s *config.Sandbox) { s.AllowRead, s.DenyRead = []string{"/srv"}, []string{"/srv/x"} }), "open /srv/x/y: no such file or directory", "deny_read hides /srv/x/y"},
		"of an image":       {box(func(s *config.Sandbox) { s.Root = "/images/x" }), "open /srv/x: no such file or directory", ""},
		"without walls":     {plain, "open /srv/x: no such file or directory", ""},

		"pip":            {box(), "ERROR: Package 'x' requires a different Python: 3.9.2 not in '>=3.12'", "it needs Python >=3.12; name one that is installed with --python"},
		"uv":             {box(), "Because the current Python version (3.11.2) does not satisfy Python>=3.13 and x depends on Python>=3.13", "it needs Python >=3.13; name one"},
		"metadata":       {plain, "x 1.0 Requires-Python >=3.12,<4", "it needs Python >=3.12,<4; name that one in servers.srv.command"},
		"typing":         {plain, "ImportError: cannot import name 'Self' from 'typing' (/usr/lib/python3.9/typing.py)", "a newer Python"},
		"tomllib":        {plain, "ModuleNotFoundError: No module named 'tomllib'", "a newer Python"},
		"syntax":         {plain, "    match x:\n          ^\nSyntaxError: invalid syntax", "perhaps a newer Python"},
		"about a syntax": {plain, "a SyntaxError: in a query", ""},

		"mcp 2, a name":      {box(), "ImportError: cannot import name 'FastMCP' from 'mcp.server' (/x/mcp/server/__init__.py)", "uvx --with 'mcp<2'"},
		"mcp 2, a module":    {box(), "ModuleNotFoundError: No module named 'mcp.server.fastmcp'", "uvx --with 'mcp<2'"},
		"mcp 2, a method":    {box(), "AttributeError: 'Server' object has no attribute 'list_resources'", "uvx --with 'mcp<2'"},
		"another server":     {box(), "AttributeError: 'Server' object has no attribute 'listen'", ""},
		"mcp 2, outside":     {plain, "ModuleNotFoundError: No module named 'mcp.server.fastmcp'", "pip install 'mcp<2'"},
		"no mcp":             {plain, "ModuleNotFoundError: No module named 'mcp'", ""},
		"something like mcp": {plain, "ModuleNotFoundError: No module named 'mcpx.y'", ""},
	} {
		if got := upstream.HintFor(tt.spec, tt.log); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
