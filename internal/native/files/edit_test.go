package files

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func oneEdit(old, new string) []any { return []any{map[string]any{"oldText": old, "newText": new}} }

// TestEditsAtOnce has many clients edit one file: none is lost.
func TestEditsAtOnce(t *testing.T) {
	for ground, open := range grounds() {
		t.Run(ground, func(t *testing.T) {
			const n = 40
			var body strings.Builder
			for i := range n {
				fmt.Fprintf(&body, "<%d>\n", i)
			}
			s, err := New(nil, open(t, func(dir string) { put(t, dir, map[string]string{"f": body.String()}) }))
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range 4 {
				cs := nativetest.Connect(t, s, nativetest.Eras()[i%2], nil)
				wg.Go(func() {
					for k := i; k < n; k += 4 {
						res := nativetest.Call(t, cs, "edit_file", map[string]any{"path": "f", "edits": oneEdit(fmt.Sprintf("<%d>", k), fmt.Sprintf("done %d", k))})
						if res.IsError {
							t.Errorf("edit %d: %s", k, nativetest.Text(res))
						}
					}
				})
			}
			wg.Wait()
			got := ok(t, nativetest.Connect(t, s, nativetest.Modern, nil), "read_text_file", map[string]any{"path": "f"})
			if strings.Count(got, "done") != n {
				t.Errorf("edits are lost:\n%s", got)
			}
		})
	}
}

// TestEditUnderAnotherWriter has another member of the session write between an
// edit's read and its write.
func TestEditUnderAnotherWriter(t *testing.T) {
	f := folder(t, func(dir string) { put(t, dir, map[string]string{"f": "a\nb\n"}) })
	write := func(body string) {
		if err := f.Write("f", strings.NewReader(body), int64(len(body))); err != nil {
			t.Fatal(err)
		}
	}
	opens := 0
	between := func(when int, body string) hooked {
		opens = 0
		return hooked{FS: f, open: hookOpen(f, func() {
			if opens++; opens == when {
				write(body)
			}
		})}
	}
	cs := connect(t, between(2, "a\nb\nc\n"), nativetest.Modern, nil)
	ok(t, cs, "edit_file", map[string]any{"path": "f", "edits": oneEdit("a", "A")})
	if got := ok(t, cs, "read_text_file", map[string]any{"path": "f"}); got != "A\nb\nc\n" {
		t.Errorf("got %q", got)
	}
	// It may also have taken away what was to be replaced.
	cs = connect(t, between(2, "nothing\n"), nativetest.Modern, nil)
	refused(t, cs, "edit_file", map[string]any{"path": "f", "edits": oneEdit("b", "B")})
	// One that changes all the time ends in an error, and is left alone.
	n := 0
	cs = connect(t, hooked{FS: f, open: hookOpen(f, func() { n++; write(fmt.Sprintf("b %d\n", n)) })}, nativetest.Modern, nil)
	if why := refused(t, cs, "edit_file", map[string]any{"path": "f", "edits": oneEdit("b", "B")}); !strings.Contains(why, "nothing was written") {
		t.Error(why)
	}
}

func TestFailedWriteChangesNothing(t *testing.T) {
	f := folder(t, func(dir string) { put(t, dir, map[string]string{"f": "a"}) })
	full := hooked{FS: f, write: func(string, io.Reader, int64) error { return fmt.Errorf("append: %w", noSpace) }}
	cs := connect(t, full, nativetest.Modern, nil)
	for tool, args := range map[string]map[string]any{
		"write_file": {"path": "f", "content": "b"},
		"edit_file":  {"path": "f", "edits": oneEdit("a", "b")},
	} {
		// It is no answer of the tool.
		if res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args}); err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("%s: %+v, %v", tool, res, err)
		}
	}
	if got := ok(t, cs, "read_text_file", map[string]any{"path": "f"}); got != "a" {
		t.Errorf("got %q", got)
	}
}

func TestEditsThatAreRefused(t *testing.T) {
	for ground, open := range grounds() {
		t.Run(ground, func(t *testing.T) {
			cs := connect(t, open(t, func(dir string) { put(t, dir, map[string]string{"bin": "a\xffb", "f": "a\n"}) }), nativetest.Modern, nil)
			if why := refused(t, cs, "edit_file", map[string]any{"path": "bin", "edits": oneEdit("a", "b")}); !strings.Contains(why, "UTF-8") {
				t.Error(why)
			}
			// All edits or none.
			refused(t, cs, "edit_file", map[string]any{"path": "f", "edits": append(oneEdit("a", "b"), oneEdit("x", "y")...)})
			if got := ok(t, cs, "read_text_file", map[string]any{"path": "f"}); got != "a\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestApplyLoosely(t *testing.T) {
	tests := []struct{ text, old, new, want string }{
		{"\tif a {\n\t\tb\n\t}", "if a {\nb\n}", "if c {\n\td\n}", "\tif c {\n\td\n}"},
		{"  x\n    y", "x\n  y", "p\n    q\n  r", "  p\n    q\n  r"},
		{"a\n\n b ", "\nb", "c", "a\nc"},
		{"\u00a0\ufeffa", "a ", "b", "\u00a0\ufeffb"},
		{"\u0085a", "a ", "b", ""},
		{"aa\na", " a", "b", "aa\nb"},
	}
	for _, tt := range tests {
		got, found := applyLoosely(tt.text, tt.old, tt.new)
		if got != tt.want || found != (tt.want != "") {
			t.Errorf("%q, %q to %q: got %q, want %q", tt.text, tt.old, tt.new, got, tt.want)
		}
	}
}
