package files

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

// TestEscapes tries every tool on paths that lead out, or look as if they did.
func TestEscapes(t *testing.T) {
	for ground, open := range grounds() {
		for _, era := range nativetest.Eras() {
			t.Run(ground+"/"+era, func(t *testing.T) {
				out := realTemp(t)
				put(t, out, map[string]string{"secret": "secret", "dir/secret": "secret"})
				f := open(t, func(dir string) {
					put(t, dir, map[string]string{"in/a": "a", "b": "b", "İ": "dotted"})
					links(t, dir, map[string]string{
						"out": out, "file": filepath.Join(out, "secret"), "up": "..", "in/up": "../..", "in/far": "../../../../../../../../../../" + out,
						"chain": "in/far", "root": "/", "proc": "/proc/self/root", "twice": "out/dir", "gone": filepath.Join(out, "new"),
					})
				})
				cs := connect(t, f, era, nil)
				root := f.Root()
				paths := []string{
					"..", "../", "../secret", "in/../../secret", "./../x", "in/./../../x", "/", "/etc/passwd", "/proc/self/environ",
					out, out + "/secret", out + "/dir/../secret", root + "/..", root + "/../", root + "/in/../../x", root + "x", root + " ", root + "\n",
					strings.ToUpper(root) + "/b", "/" + root + "/../b", root + "/b\x00", "b\x00.txt", "\x00", "~", "~/b", "~/../b", "C:\\b", "c:/b", "C:",
					"out", "out/secret", "out/new", "file", "up/x", "in/up/x", "in/far/secret", "chain/secret", "root/etc/passwd", "proc/etc/passwd", "twice/secret", "gone", "out/../../x",
					"in/up/" + filepath.Base(root) + "/../x",
				}
				// Names that only look like "..", "/" or a path elsewhere are names, and
				// nothing has them.
				literal := []string{" " + root + "/../b", "\"" + root + "/../x\"", "%2e%2e/secret", "..%2fsecret", "..%252fsecret", "．．/secret", "‥/secret", "․․/secret", "..∕secret", "..\\secret", "\\\\server\\share", "file://" + out + "/secret", "in\\..\\..\\secret", "B", "In/a", "i̇", "I"}
				for _, p := range append(paths, literal...) {
					edits := []any{map[string]any{"oldText": "secret", "newText": "changed"}}
					for tool, args := range map[string]map[string]any{
						"read_text_file":            {"path": p},
						"read_media_file":           {"path": p},
						"edit_file":                 {"path": p, "edits": edits},
						"list_directory":            {"path": p},
						"list_directory_with_sizes": {"path": p},
						"directory_tree":            {"path": p},
						"search_files":              {"path": p, "pattern": "**"},
						"get_file_info":             {"path": p},
						"move_file":                 {"source": p, "destination": "stolen"},
					} {
						if why := refused(t, cs, tool, args); strings.Contains(why, "secret:") {
							t.Errorf("%s %q: %s", tool, p, why)
						}
					}
					got := ok(t, cs, "read_multiple_files", map[string]any{"paths": []string{p}})
					if !strings.HasPrefix(got, p+": Error - ") {
						t.Errorf("read_multiple_files %q: %s", p, got)
					}
				}
				for _, p := range paths {
					refused(t, cs, "write_file", map[string]any{"path": p, "content": "x"})
					refused(t, cs, "create_directory", map[string]any{"path": p})
					refused(t, cs, "create_directory", map[string]any{"path": p + "/new"})
					refused(t, cs, "move_file", map[string]any{"source": "b", "destination": p})
				}
				// A link that leads out is listed; its target is not shown.
				for tool, args := range map[string]map[string]any{
					"list_directory_with_sizes": {"path": "."}, "directory_tree": {"path": "."}, "search_files": {"path": ".", "pattern": "**"},
				} {
					if got := ok(t, cs, tool, args); strings.Contains(got, "secret") || strings.Contains(got, out) {
						t.Errorf("%s tells %s", tool, got)
					}
				}
				if got := ok(t, cs, "search_files", map[string]any{"path": ".", "pattern": "{out,file,up,root,chain,twice,gone}"}); got != "No matches found" {
					t.Errorf("a search finds links that lead out: %s", got)
				}
				for name, want := range map[string]string{"secret": "secret", "dir/secret": "secret"} {
					if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(b) != want {
						t.Errorf("outside, %s is %q, %v", name, b, err)
					}
				}
				if entries, err := os.ReadDir(out); err != nil || len(entries) != 2 {
					t.Errorf("outside there are %v, %v", entries, err)
				}
				if got := ok(t, cs, "read_text_file", map[string]any{"path": "b"}); got != "b" {
					t.Errorf("b is %q", got)
				}
			})
		}
	}
}

// TestSwappedForALink has another program replace a directory by a link to the
// outside and back all the time.
func TestSwappedForALink(t *testing.T) {
	out := realTemp(t)
	put(t, out, map[string]string{"f": "secret"})
	var dir string
	f := folder(t, func(d string) {
		dir = d
		put(t, d, map[string]string{"d/f": "inside", "keep/f": "inside"})
		links(t, d, map[string]string{"link": out})
	})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "aside"))
			os.Rename(filepath.Join(dir, "link"), filepath.Join(dir, "d"))
			os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "link"))
			os.Rename(filepath.Join(dir, "aside"), filepath.Join(dir, "d"))
		}
	})
	cs := connect(t, f, nativetest.Modern, nil)
	for i := range 60 {
		var res *mcp.CallToolResult
		for _, call := range []struct {
			tool string
			args map[string]any
		}{
			{"read_text_file", map[string]any{"path": "d/f"}},
			{"read_media_file", map[string]any{"path": "d/f"}},
			{"write_file", map[string]any{"path": "d/f", "content": "inside"}},
			{"write_file", map[string]any{"path": "d/new", "content": "inside"}},
			{"edit_file", map[string]any{"path": "d/f", "edits": []any{map[string]any{"oldText": "secret", "newText": "found"}}}},
			{"move_file", map[string]any{"source": "d/f", "destination": "d/g"}},
			{"move_file", map[string]any{"source": "d/g", "destination": "d/f"}},
			{"create_directory", map[string]any{"path": "d/dir"}},
			{"search_files", map[string]any{"path": ".", "pattern": "**"}},
			{"directory_tree", map[string]any{"path": "."}},
		} {
			res = nativetest.Call(t, cs, call.tool, call.args)
			if got := nativetest.Text(res); strings.Contains(got, "c2VjcmV0") || call.tool == "read_text_file" && !res.IsError && got != "inside" {
				t.Fatalf("round %d: %s: %s", i, call.tool, got)
			}
		}
	}
	close(done)
	wg.Wait()
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 1 {
		t.Errorf("outside there are %v, %v", entries, err)
	}
	if b, err := os.ReadFile(filepath.Join(out, "f")); err != nil || string(b) != "secret" {
		t.Errorf("outside, f is %q, %v", b, err)
	}
}

func TestUnicodeForms(t *testing.T) {
	for ground, open := range grounds() {
		t.Run(ground, func(t *testing.T) {
			cs := connect(t, open(t, func(dir string) { put(t, dir, map[string]string{"d/x": "x"}) }), nativetest.Modern, nil)
			write := func(name, body string) {
				ok(t, cs, "write_file", map[string]any{"path": name, "content": body})
			}
			// ệ as one character, and as two that are another form of it.
			write("d/\u1ec7", "one")
			write("d/e\u0323\u0302", "two")
			if got := ok(t, cs, "list_directory", map[string]any{"path": "d"}); got != "[FILE] x\n[FILE] \u1ec7" {
				t.Errorf("got %q", got)
			}
			if got := ok(t, cs, "read_text_file", map[string]any{"path": "d/\u1eb9\u0302"}); got != "two" {
				t.Errorf("got %q", got)
			}
		})
	}
}
