package gateway

import "testing"

func TestRoute(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]door{
		"/mcp":                     {},
		"/mcp/files":               {view: view{server: "files"}},
		"/mcp/files~0":             {view: view{server: "files"}},
		"/s/ses_1/mcp/files~0":     {view: view{server: "files"}, session: "ses_1"},
		"/s/ses_1/sse/files":       {view: view{server: "files"}, session: "ses_1", kind: doorEvents},
		"/s/ses_1/mcp/files~2":     {view: view{server: "files~2"}, session: "ses_1"},
		"/mcp/files~0/sse":         {view: view{server: "files"}, kind: doorEvents},
		"/streamable-http/files~0": {view: view{server: "files"}},
	} {
		if got, ok := route(path); !ok || got != want {
			t.Errorf("%s: %+v, %v", path, got, ok)
		}
	}
}
