package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/workspace"
)

// A hooked FS is another one of which a test changes a part.
type hooked struct {
	workspace.FS
	open    func(name string) (workspace.File, error)
	readDir func(name string) ([]workspace.Info, error)
	write   func(name string, r io.Reader, size int64) error
}

func (h hooked) Open(name string) (workspace.File, error) {
	if h.open != nil {
		return h.open(name)
	}
	return h.FS.Open(name)
}

func (h hooked) ReadDir(name string) ([]workspace.Info, error) {
	if h.readDir != nil {
		return h.readDir(name)
	}
	return h.FS.ReadDir(name)
}

func (h hooked) Write(name string, r io.Reader, size int64) error {
	if h.write != nil {
		return h.write(name, r, size)
	}
	return h.FS.Write(name, r, size)
}

// A made file says what its bytes are.
type made struct {
	size   int64
	readAt func(p []byte, off int64) (int, error)
	read   *atomic.Int64
}

func (m made) Info() workspace.Info { return workspace.Info{Name: "made", Size: m.size} }
func (m made) Close() error         { return nil }
func (m made) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.readAt(p, off)
	if m.read != nil {
		m.read.Add(int64(n))
	}
	return n, err
}

// TestPartsOfAHugeFile has a file of 1 GiB with lines of 64 bytes, of which head
// and tail must not read more than they need.
func TestPartsOfAHugeFile(t *testing.T) {
	const size = 1 << 30
	line := []byte(strings.Repeat("x", 63) + "\n")
	var read atomic.Int64
	huge := made{size: size, read: &read, readAt: func(p []byte, off int64) (int, error) {
		if off >= size {
			return 0, io.EOF
		}
		n := int(min(int64(len(p)), size-off))
		for i := range n {
			p[i] = line[(off+int64(i))%64]
		}
		if n < len(p) {
			return n, io.EOF
		}
		return n, nil
	}}
	f := hooked{FS: folder(t, func(string) {}), open: func(string) (workspace.File, error) { return huge, nil }}
	cs := connect(t, f, nativetest.Modern, nil)
	for _, tt := range []struct {
		args  map[string]any
		lines int
		most  int64
	}{
		{map[string]any{"head": 3}, 3, 8 << 10},
		{map[string]any{"tail": 3}, 3, 8 << 10},
		{map[string]any{"head": 5000}, 5000, 1 << 20},
		{map[string]any{"tail": 5000}, 5000, 1 << 20},
	} {
		read.Store(0)
		tt.args["path"] = "huge"
		got := ok(t, cs, "read_text_file", tt.args)
		if n := strings.Count(got, "\n") + 1; n != tt.lines {
			t.Errorf("%v: %d lines", tt.args, n)
		}
		if n := read.Load(); n > tt.most {
			t.Errorf("%v: %d bytes were read", tt.args, n)
		}
	}
	// The whole, or so many lines, are refused early.
	for _, args := range []map[string]any{{}, {"head": 1e9}, {"tail": 1e9}} {
		read.Store(0)
		args["path"] = "huge"
		if why := refused(t, cs, "read_text_file", args); !strings.Contains(why, "head or tail") || !strings.Contains(why, fmt.Sprint(defaultMaxRead)) {
			t.Errorf("%v: %s", args, why)
		}
		if n := read.Load(); n > 3*defaultMaxRead {
			t.Errorf("%v: %d bytes were read", args, n)
		}
	}
	read.Store(0)
	refused(t, cs, "read_media_file", map[string]any{"path": "."})
}

func TestFileThatChangesWhileRead(t *testing.T) {
	growing := made{size: 10, readAt: func(p []byte, _ int64) (int, error) {
		for i := range p {
			p[i] = 'g'
		}
		return len(p), nil
	}}
	shrunk := func(left string) made {
		return made{size: 100_000, readAt: bytes.NewReader([]byte(left)).ReadAt}
	}
	var tooMuch tooLarge
	if _, err := whole(t.Context(), growing, 1<<20); !errors.As(err, &tooMuch) {
		t.Errorf("a file that never ends: %v", err)
	}
	if _, err := head(t.Context(), growing, 1, 1<<20); !errors.As(err, &tooMuch) {
		t.Errorf("a line that never ends: %v", err)
	}
	if b, err := whole(t.Context(), shrunk("left"), 1<<20); err != nil || string(b) != "left" {
		t.Errorf("got %q, %v", b, err)
	}
	if b, err := tail(t.Context(), shrunk("a\nb\nc"), 2, 1<<20); err != nil || string(b) != "b\nc" {
		t.Errorf("got %q, %v", b, err)
	}
	if b, err := tail(t.Context(), shrunk(""), 2, 1<<20); err != nil || len(b) != 0 {
		t.Errorf("got %q, %v", b, err)
	}
	broken := made{size: 10, readAt: func([]byte, int64) (int, error) { return 0, io.ErrUnexpectedEOF }}
	for name, read := range map[string]func() ([]byte, error){
		"whole": func() ([]byte, error) { return whole(t.Context(), broken, 100) },
		"head":  func() ([]byte, error) { return head(t.Context(), broken, 1, 100) },
		"tail":  func() ([]byte, error) { return tail(t.Context(), broken, 1, 100) },
	} {
		if _, err := read(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := whole(ctx, growing, 1<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestMaxRead(t *testing.T) {
	for ground, open := range grounds() {
		t.Run(ground, func(t *testing.T) {
			cs := connect(t, open(t, func(dir string) {
				put(t, dir, map[string]string{"ten": "0123456789", "eleven": "0123456789a", "lines": "0123\n5678\nabcd", "x.png": "0123456789a"})
			}), nativetest.Modern, map[string]any{"max_read": 10})
			if got := ok(t, cs, "read_text_file", map[string]any{"path": "ten"}); got != "0123456789" {
				t.Errorf("got %q", got)
			}
			for _, args := range []map[string]any{{"path": "eleven"}, {"path": "eleven", "head": 1}, {"path": "eleven", "tail": 1}, {"path": "lines", "head": 3}, {"path": "lines", "tail": 3}} {
				if why := refused(t, cs, "read_text_file", args); !strings.Contains(why, "10 bytes") {
					t.Errorf("%v: %s", args, why)
				}
			}
			if got := ok(t, cs, "read_text_file", map[string]any{"path": "lines", "head": 2}); got != "0123\n5678" {
				t.Errorf("got %q", got)
			}
			if got := ok(t, cs, "read_text_file", map[string]any{"path": "lines", "tail": 2}); got != "5678\nabcd" {
				t.Errorf("got %q", got)
			}
			refused(t, cs, "read_media_file", map[string]any{"path": "x.png"})
			refused(t, cs, "edit_file", map[string]any{"path": "eleven", "edits": []any{}})
			got := ok(t, cs, "read_multiple_files", map[string]any{"paths": []string{"ten", "eleven", "ten"}})
			if !strings.HasPrefix(got, "ten:\n0123456789\n\n---\neleven: Error - ") || strings.Count(got, "Error") != 2 {
				t.Errorf("got %q", got)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("a\xe2\x82b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := decode(b)
		if !utf8.ValidString(got) {
			t.Errorf("%q gives %q", b, got)
		}
		if utf8.Valid(b) && got != string(b) {
			t.Errorf("%q gives %q", b, got)
		}
		if again := decode([]byte(got)); again != got {
			t.Errorf("%q gives %q and then %q", b, got, again)
		}
	})
}
