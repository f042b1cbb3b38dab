package gateway

import "testing"

func TestRoute(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]door{
		"/mcp":                     {},
		"/mcp/files":               {view: view{"files"}},
		"/mcp/files~0":             {view: view{"files"}},
		"/s/ses_1/mcp/files~0":     {view: view{"files"}, session: "ses_1"},
		"/s/ses_1/sse/files":       {view: view{"files"}, session: "ses_1", kind: doorEvents},
		"/s/ses_1/mcp/files~2":     {view: view{"files~2"}, session: "ses_1"},
		"/mcp/files~0/sse":         {view: view{"files"}, kind: doorEvents},
		"/streamable-http/files~0": {view: view{"files"}},
	} {
		if got, ok := route(path); !ok || got != want {
			t.Errorf("%s: %+v, %v", path, got, ok)
		}
	}
}
