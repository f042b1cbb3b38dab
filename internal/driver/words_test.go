package driver_test

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestLastWords(t *testing.T) {
	long := strings.Repeat("x", 3*driver.MaxWords)
	for name, tt := range map[string]struct{ log, want string }{
		"nothing":     {"", ""},
		"blanks":      {" \n\n\t\n", ""},
		"five lines":  {"1\n2\n3\n4\n5\n", "1\n2\n3\n4\n5"},
		"six lines":   {"1\n2\n\n3\n4\n5\n6\n", "2\n3\n4\n5\n6"},
		"not UTF-8":   {"a\xffb\n", "a\uFFFDb"},
		"a long past": {long + "\nend\n", "end"},
		"a long line": {"begin\n" + long + "end", long[:driver.MaxWords-3] + "end"},
		"warnings": {"npm warn Unknown user config \"nodedir\". This will stop working in the next major version of npm.\nnpm WARN deprecated x@1: use y\nnpm notice New major version of npm available!\n" +
			"warning: `VIRTUAL_ENV=/x` does not match the project environment path\n[notice] A new release of pip is available\nError: no key\n", "Error: no key"},
		"a warning of the program": {"warning: no key\nbye\n", "warning: no key\nbye"},
		"a warning alone":          {"npm warn exec The following package was not found\n", "npm warn exec The following package was not found"},
		"marks alone":              {"{\n}\n", "{\n}"},
		"Node.js": {"node:internal/modules/cjs/loader:1146\n  throw err;\n  ^\n\nError: getaddrinfo EAI_AGAIN example.com\n    at GetAddrInfoReqWrap.onlookup [as oncomplete] (node:dns:109:26)\n" +
			"    at x (node:dns:109:26) {\n  errno: -3001,\n  code: 'EAI_AGAIN',\n  hostname: 'example.com'\n}\n\nNode.js v20.19.2\n",
			"throw err;\nError: getaddrinfo EAI_AGAIN example.com\n  errno: -3001,\n  code: 'EAI_AGAIN',\n  hostname: 'example.com'"},
		"details": {"Error: getaddrinfo EAI_AGAIN example.com\n    at x (y)\nEmitted 'error' event on ClientRequest instance at:\n    at z (y) {\n  errno: -3001,\n  code: 'EAI_AGAIN',\n  syscall: 'getaddrinfo',\n  hostname: 'example.com'\n}\n",
			"Error: getaddrinfo EAI_AGAIN example.com\n  errno: -3001,\n  code: 'EAI_AGAIN',\n  syscall: 'getaddrinfo',\n  hostname: 'example.com'"},
		"Python": {"Traceback (most recent call last):\n  File \"/x.py\", line 1, in <module>\n    import y\n    ^^^^^^^^\nModuleNotFoundError: No module named 'y'\n",
			"Traceback (most recent call last):\n  File \"/x.py\", line 1, in <module>\n    import y\nModuleNotFoundError: No module named 'y'"},
	} {
		if got := driver.LastWords(tt.log); got != tt.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
