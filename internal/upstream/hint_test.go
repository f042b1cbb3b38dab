package upstream_test

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream"
)

func TestHints(t *testing.T) {
	pack := driver.Spec{Server: "srv", Command: "uvx"}
	plain := driver.Spec{Server: "srv", Command: "/usr/bin/python3"}
	for name, tt := range map[string]struct {
		spec driver.Spec
		log  string
		want string // none where it is empty
	}{
		"nothing":         {pack, "", ""},
		"an ordinary end": {pack, "usage: server [-h]", ""},
		"pip":             {pack, "ERROR: Package 'x' requires a different Python: 3.9.2 not in '>=3.12'", "it needs Python >=3.12; name one that is installed with --python"},
		"uv":              {pack, "Because the current Python version (3.11.2) does not satisfy Python>=3.13 and x depends on Python>=3.13", "it needs Python >=3.13; name one"},
		"metadata":        {plain, "x 1.0 Requires-Python >=3.12,<4", "it needs Python >=3.12,<4; name that one in servers.srv.command"},
		"typing":          {plain, "ImportError: cannot import name 'Self' from 'typing' (/usr/lib/python3.9/typing.py)", "a newer Python"},
		"tomllib":         {plain, "ModuleNotFoundError: No module named 'tomllib'", "a newer Python"},
		"syntax":          {plain, "    match x:\n          ^\nSyntaxError: invalid syntax", "perhaps a newer Python"},
		"about a syntax":  {plain, "a SyntaxError: in a query", ""},

		"mcp 2, a name":      {pack, "ImportError: cannot import name 'FastMCP' from 'mcp.server' (/x/mcp/server/__init__.py)", "uvx --with 'mcp<2'"},
		"mcp 2, a module":    {pack, "ModuleNotFoundError: No module named 'mcp.server.fastmcp'", "uvx --with 'mcp<2'"},
		"mcp 2, a method":    {pack, "AttributeError: 'Server' object has no attribute 'list_resources'", "uvx --with 'mcp<2'"},
		"another server":     {pack, "AttributeError: 'Server' object has no attribute 'listen'", ""},
		"mcp 2, outside":     {plain, "ModuleNotFoundError: No module named 'mcp.server.fastmcp'", "pip install 'mcp<2'"},
		"no mcp":             {plain, "ModuleNotFoundError: No module named 'mcp'", ""},
		"something like mcp": {plain, "ModuleNotFoundError: No module named 'mcpx.y'", ""},
	} {
		if got := upstream.Hints.For(tt.spec, tt.log); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
