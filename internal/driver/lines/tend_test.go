package lines

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTend(t *testing.T) {
	const limit = 1000
	type step struct{ exited, ok bool }
	on, over, away := step{false, true}, step{true, true}, step{false, false}
	for name, tt := range map[string]struct {
		steps []step
		want  bool
	}{
		"it ends":  {[]step{on, on, over}, true},
		"at once":  {[]step{over}, true},
		"no watch": {[]step{on, away}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := OpenLog(dir, limit)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var logged bytes.Buffer
			n := 0
			got := l.Tend(slog.New(slog.NewTextHandler(&logged, nil)), func(most time.Duration) (exited, ok bool) {
				if most <= 0 {
					t.Errorf("wait for %s", most)
				}
				if size := len(read(t, dir)); size > limit/2 {
					t.Errorf("the file has %d bytes after %d looks", size, n)
				}
				if _, err := l.File().Write(bytes.Repeat([]byte("x\n"), limit)); err != nil {
					t.Fatal(err)
				}
				s := tt.steps[n]
				n++
				return s.exited, s.ok
			})
			if got != tt.want || n != len(tt.steps) {
				t.Errorf("got %t after %d looks", got, n)
			}
			if logged.Len() > 0 {
				t.Errorf("it logged: %s", &logged)
			}
		})
	}
}

func TestTendTellsOnceThatItCant(t *testing.T) {
	dir := t.TempDir()
	l, err := OpenLog(dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	l.f.Close()
	var logged bytes.Buffer
	n := 0
	ended := l.Tend(slog.New(slog.NewTextHandler(&logged, nil)), func(time.Duration) (exited, ok bool) {
		n++
		return n == 3, true
	})
	if !ended || strings.Count(logged.String(), "can't be cut") != 1 {
		t.Errorf("ended: %t, logged: %s", ended, &logged)
	}
}

func TestLogs(t *testing.T) {
	l, err := OpenLog(t.TempDir(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	r, err := l.Logs("files", 4)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); string(b) != "two\n" || err != nil || r.Close() != nil {
		t.Errorf("got %q, %v", b, err)
	}
	l.f.Close()
	if _, err := l.Logs("files", 4); err == nil || !strings.HasPrefix(err.Error(), `server "files": `) {
		t.Errorf("of a file that can't be read: %v", err)
	}
}

func read(t *testing.T, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, LogName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
