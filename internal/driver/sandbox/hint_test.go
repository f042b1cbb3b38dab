package sandbox

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestHints(t *testing.T) {
	box := func(change ...func(*Config)) driver.Spec {
		s := driver.Spec{Server: "srv", Command: "uvx", Options: &Config{Root: RootAllow, Network: NetworkNone}}
		for _, c := range change {
			c(driver.Options[Config](s))
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
		"listed":              {box(func(s *Config) { s.Network, s.Domains = "", []string{"example.com"} }), "EAI_AGAIN", "HTTPS_PROXY"},
		"on the host's":       {box(func(s *Config) { s.Network = NetworkHost }), "EAI_AGAIN", ""},
		"outside":             {plain, "EAI_AGAIN", ""},

		"Node.js, a file":   {box(), "Error: ENOENT: no such file or directory, open '/srv/data/my file.db'", "does not show /srv/data/my file.db; if it is on this machine, add it, or its folder, to servers.srv.sandbox.allow_read"},
		"Python, a file":    {box(), "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/notes'", "/home/me/notes;"},
		"Python, closed":    {box(), "PermissionError: [Errno 13] Permission denied: '/srv/x'", "/srv/x;"},
		"Python, a script":  {box(), "python3: can't open file '/srv/server.py': [Errno 2] No such file or directory", "/srv/server.py;"},
		"Go, a file":        {box(), "2026/11/17 open /etc/srv.toml: no such file or directory", "/etc/srv.toml;"},
		"the last of two":   {box(), "open /srv/a: no such file or directory\nopen /srv/b: no such file or directory", "/srv/b;"},
		"of its own":        {box(), "ENOENT: no such file or directory, open '/home/user/.cache/x'", ""},
		"of the system":     {box(), "open /usr/share/x: no such file or directory", ""},
		"allowed":           {box(func(s *Config) { s.AllowRead = []string{"/srv"} }), "open /srv/x: no such file or directory", ""},
		"beside an allowed": {box(func(s *Config) { s.AllowRead = []string{"/srv"} }), "open /srv2/x: no such file or directory", "/srv2/x;"},
		"denied":            {box(func(s *Config) { s.AllowRead, s.DenyRead = []string{"/srv"}, []string{"/srv/x"} }), "open /srv/x/y: no such file or directory", "deny_read hides /srv/x/y"},
		"of an image":       {box(func(s *Config) { s.Root = "/images/x" }), "open /srv/x: no such file or directory", ""},
		"without walls":     {plain, "open /srv/x: no such file or directory", ""},
	} {
		if got := hints.For(tt.spec, tt.log); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
