package files

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestSettings(t *testing.T) {
	f := folder(t, func(string) {})
	for _, good := range []map[string]any{nil, {"readonly": true}, {"max_read": 1}, {"max_read": mostMaxRead}} {
		if _, err := New(good, f); err != nil {
			t.Errorf("New(%v): %v", good, err)
		}
	}
	for _, bad := range []map[string]any{{"readonly": "yes"}, {"max_read": 0}, {"max_read": -1}, {"max_read": mostMaxRead + 1}, {"max_read": 1.5}, {"root": "/"}} {
		if _, err := New(bad, f); err == nil || !strings.Contains(err.Error(), "settings.") {
			t.Errorf("New(%v): err = %v", bad, err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			cs := connect(t, folder(t, func(dir string) { put(t, dir, map[string]string{"a": "one"}) }), era, map[string]any{"readonly": true})
			for tool, err := range cs.Tools(t.Context(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				if !tool.Annotations.ReadOnlyHint {
					t.Errorf("%s is listed", tool.Name)
				}
			}
			for tool, args := range map[string]map[string]any{
				"write_file":       {"path": "a", "content": "two"},
				"edit_file":        {"path": "a", "edits": []any{map[string]any{"oldText": "one", "newText": "two"}}},
				"create_directory": {"path": "d"},
				"move_file":        {"source": "a", "destination": "b"},
			} {
				if why := refused(t, cs, tool, args); !strings.Contains(why, "read-only") {
					t.Errorf("%s: %s", tool, why)
				}
			}
			if got := ok(t, cs, "read_text_file", map[string]any{"path": "a"}); got != "one" {
				t.Errorf("a is %q", got)
			}
			if got := ok(t, cs, "list_directory", map[string]any{"path": "."}); got != "[FILE] a" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestUnknownToolAndBadArguments(t *testing.T) {
	cs := connect(t, folder(t, func(string) {}), nativetest.Modern, nil)
	if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "delete_file"}); err == nil || !strings.Contains(err.Error(), "unknown tool") {
		t.Errorf("err = %v", err)
	}
	for _, raw := range []string{`[]`, `"x"`, `{"path":["a"]}`, `{"path":{}}`, `{"path":true}`} {
		res := nativetest.Call(t, cs, "list_directory", json.RawMessage(raw))
		if !res.IsError || !strings.Contains(nativetest.Text(res), "Invalid arguments for tool list_directory") {
			t.Errorf("%s: %s", raw, nativetest.Text(res))
		}
	}
}

func BenchmarkNew(b *testing.B) {
	f := folder(b, func(string) {})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(nil, f); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdle measures the memory of a server without calls.
func BenchmarkIdle(b *testing.B) {
	f := folder(b, func(string) {})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	servers := make([]*mcp.Server, 0, b.N)
	for range b.N {
		s, err := New(nil, f)
		if err != nil {
			b.Fatal(err)
		}
		servers = append(servers, s)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "heap-B/server")
	runtime.KeepAlive(servers)
}
