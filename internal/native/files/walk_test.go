package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/workspace"
)

var noSpace = syscall.ENOSPC

// hookOpen calls hook before a file is opened.
func hookOpen(f workspace.FS, hook func()) func(string) (workspace.File, error) {
	return func(name string) (workspace.File, error) {
		hook()
		return f.Open(name)
	}
}

func many(t testing.TB) func(dir string) {
	return func(dir string) {
		files := map[string]string{}
		for i := range 20 {
			for k := range 10 {
				files[fmt.Sprintf("d%02d/f%02d", i, k)] = "x"
			}
		}
		put(t, dir, files)
	}
}

func TestLimits(t *testing.T) {
	f := folder(t, many(t))
	for _, tt := range []struct {
		name    string
		entries int
		maxRead int64
		note    string
	}{
		{"entries", 50, defaultMaxRead, "after looking at 50 entries"},
		{"bytes", 1_000_000, 2000, "at the 2000 bytes that one call returns"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &server{tree: f, maxRead: tt.maxRead, maxEntries: tt.entries}
			a := func(kv string) *args {
				out, err := newArgs(json.RawMessage(kv))
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			res, err := s.search(t.Context(), a(`{"path":".","pattern":"**"}`))
			if err != nil {
				t.Fatal(err)
			}
			found := strings.Split(nativetest.Text(res), "\n")
			if last := found[len(found)-1]; !strings.Contains(last, tt.note) || len(found) < 10 || len(found) > 120 {
				t.Errorf("%d lines, the last %q", len(found), last)
			}
			res, err = s.directoryTree(t.Context(), a(`{"path":"."}`))
			if err != nil {
				t.Fatal(err)
			}
			var entries []struct {
				Name, Type string
				Children   []any
			}
			if err := json.Unmarshal([]byte(nativetest.Text(res)), &entries); err != nil {
				t.Fatalf("%v in %s", err, nativetest.Text(res))
			}
			if last := entries[len(entries)-1]; last.Type != "note" || !strings.Contains(last.Name, tt.note) || len(entries) < 2 {
				t.Errorf("%d entries, the last %+v", len(entries), last)
			}
		})
	}
	s := &server{tree: f, maxRead: 50, maxEntries: 100}
	for name, list := range map[string]func() (string, error){
		"list_directory": func() (string, error) {
			res, err := s.listDirectory(t.Context(), &args{values: map[string]json.RawMessage{"path": json.RawMessage(`"."`)}})
			return nativetest.Text(res), err
		},
		"list_directory_with_sizes": func() (string, error) {
			res, err := s.listSizes(t.Context(), &args{values: map[string]json.RawMessage{"path": json.RawMessage(`"."`)}})
			return nativetest.Text(res), err
		},
	} {
		got, err := list()
		if err != nil || !strings.Contains(got, "more: the whole list has more than the 50 bytes") || !strings.HasPrefix(got, "[DIR] d00") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestCancelledWalk(t *testing.T) {
	f := folder(t, many(t))
	for name, run := range map[string]func(*server, context.Context) error{
		"search": func(s *server, ctx context.Context) error {
			_, err := s.search(ctx, &args{values: map[string]json.RawMessage{"path": json.RawMessage(`"."`), "pattern": json.RawMessage(`"x"`)}})
			return err
		},
		"tree": func(s *server, ctx context.Context) error {
			_, err := s.directoryTree(ctx, &args{values: map[string]json.RawMessage{"path": json.RawMessage(`"."`)}})
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		lists := 0
		h := hooked{FS: f, readDir: func(name string) ([]workspace.Info, error) {
			if lists++; lists == 3 {
				cancel()
			}
			return f.ReadDir(name)
		}}
		err := run(&server{tree: h, maxRead: 1 << 20, maxEntries: 1000}, ctx)
		if !errors.Is(err, context.Canceled) || lists != 3 {
			t.Errorf("%s: %d directories were read, err = %v", name, lists, err)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "0 B", 0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.00 KB", 1152: "1.13 KB", 1029: "1.00 KB", 1030: "1.01 KB",
		1<<20 - 1: "1024.00 KB", 1 << 20: "1.00 MB", 5 << 40: "5.00 TB", 5 << 50: "5120.00 TB",
	} {
		if got := formatSize(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{"a\"\\/": `"a\"\\/"`, "\b\t\n\f\r\x01\x1f\x7f": "\"\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\"", "<&>\u2028": "\"<&>\u2028\""} {
		if got := quote(s); got != want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}
