package access_test

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/control/access"
)

func TestDefines(t *testing.T) {
	for _, tt := range []struct {
		entry   string
		anybody bool
	}{
		{`{"url": "https://x.example.org/mcp", "headers": {"X-Key": "1"}, "timeout": "3s", "tools": {"deny": ["a"]}}`, true},
		{`{"builtin": "memory"}`, true},
		{`{"builtin": "time", "scope": "session"}`, true},
		{`{}`, true}, // which the config refuses
		{`{"builtin": "files"}`, false},
		{`{"builtin": "rollout"}`, false},
		{`{"builtin": ["memory"]}`, false},
		{`{"builtin": "memory", "settings": {}}`, false},
		{`{"command": "x"}`, false},
		{`{"Command": "x"}`, false},
		{`{"docker": "x"}`, false},
		{`{"remote": {}}`, false},
		{`{"preset": "fetch"}`, false},
		{`{"url": "https://x", "env_file": "/etc/x"}`, false},
		{`{"url": "https://x", "journal": "off"}`, false},
		{`{"url": "https://x", "auth": {}}`, false},
		{"url: https://x", false},
		{`{"url": "https://x"} {"command": "x"}`, false},
		{`null`, true},
		{``, false},
	} {
		for _, by := range []string{access.MadeByFile, access.MadeByOperator} {
			if public, err := access.Defines(by, "own", []byte(tt.entry)); public || err != nil {
				t.Errorf("%s by %s: %v %v", tt.entry, by, public, err)
			}
		}
		for _, by := range []string{"", "user", "File"} {
			public, err := access.Defines(by, "own", []byte(tt.entry))
			if tt.anybody != (err == nil) || public != (err == nil) {
				t.Errorf("%s by %q: %v %v", tt.entry, by, public, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "mcp_servers.own") || !strings.Contains(err.Error(), "operator")) {
				t.Errorf("%s by %q: %v", tt.entry, by, err)
			}
		}
	}
}
