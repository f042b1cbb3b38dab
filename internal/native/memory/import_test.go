package memory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func write(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memory.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImportReference reads what the npm server has written.
func TestImportReference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory.jsonl")
	cmd := testkit.NPM(t, "mcp-server-memory")
	cmd.Env = append(cmd.Environ(), "MEMORY_FILE_PATH="+path)
	ref := nativetest.ConnectReference(t, cmd, nil)
	for _, c := range script()[:11] {
		nativetest.Call(t, ref, c.tool, c.args)
	}
	store, dir := state(t)
	h := open(t, store, dir)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var heard int64
	if err := Import(t.Context(), nil, h, path, func(done, total int64) {
		if total != info.Size() {
			t.Errorf("%d of %d bytes", done, total)
		}
		heard = done
	}); err != nil {
		t.Fatal(err)
	}
	if heard != info.Size() {
		t.Errorf("heard of %d bytes", heard)
	}
	cs := serve(t, h, nativetest.Modern, nil)
	nativetest.Same(t, "imported graph", shown(nativetest.Call(t, cs, "read_graph", nil)), shown(nativetest.Call(t, ref, "read_graph", nil)))
}

func TestImport(t *testing.T) {
	const a, r = `{"type":"entity","name":"a","entityType":"t","observations":["x"]}`, `{"type":"relation","from":"a","to":"b","relationType":"r"}`
	for _, tt := range []struct {
		name, content, err string
		entities           int
	}{
		{name: "nothing"},
		{name: "blank lines", content: "\n \r\n" + a + "\r\n\n" + r + "\n\n", entities: 1},
		{name: "mixed", content: r + "\n" + a + "\n" + r + "\n" + a, entities: 2},
		{name: "torn", content: a + "\n" + a[:20], err: "line 2: is not JSON"},
		{name: "a list", content: "[]", err: "line 1: is not a JSON object"},
		{name: "no type", content: a + "\n\n{}", err: "line 3: Invalid input: expected string, received undefined at type"},
		{name: "another type", content: `{"type":"thing"}`, err: `line 1: has the type "thing"; there are entity and relation`},
		{name: "no observations", content: `{"type":"entity","name":"a","entityType":"t"}`, err: "line 1: Invalid input: expected array, received undefined at observations"},
		{name: "not a name", content: `{"type":"relation","from":1,"to":"b","relationType":"r"}`, err: "expected string, received number at from"},
		{name: "too many", content: strings.Repeat(a+"\n", 6), err: "max_entities"},
		{name: "long line", content: strings.Repeat(" ", maxLine+1) + a, err: "line 1: is longer than 32 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store, dir := state(t)
			h := open(t, store, dir)
			err := Import(t.Context(), map[string]any{"max_entities": 5}, h, write(t, tt.content), nil)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "memory.jsonl") {
					t.Errorf("err = %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || h.Value().entities.Len() != tt.entities {
				t.Errorf("%d entities, %v", h.Value().entities.Len(), err)
			}
		})
	}
	store, dir := state(t)
	h := open(t, store, dir)
	if err := Import(t.Context(), nil, h, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a folder: err = %v", err)
	}
	if err := Import(t.Context(), nil, h, "nope", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: err = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Import(ctx, nil, h, write(t, a), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: err = %v", err)
	}
}
