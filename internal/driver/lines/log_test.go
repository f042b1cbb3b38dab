package lines

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogKeepsTheEnd(t *testing.T) {
	dir := t.TempDir()
	const limit = 10_000
	l, err := OpenLog(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// The child's own opening.
	w, err := os.OpenFile(filepath.Join(dir, LogName), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var all strings.Builder
	for n := range 5000 {
		line := fmt.Sprintf("line %d\n", n)
		all.WriteString(line)
		if _, err := w.WriteString(line); err != nil {
			t.Fatal(err)
		}
		if n%100 != 0 {
			continue
		}
		if err := l.Trim(); err != nil {
			t.Fatal(err)
		}
		for _, max := range []int64{1, 5, 100, limit / 2, limit, 10 * limit} {
			got, err := l.Tail(max)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(got)) > max || !strings.HasSuffix(all.String(), string(got)) {
				t.Fatalf("the last %d bytes after line %d: %q", max, n, got)
			}
			if max >= 100 && len(got) < int(min(max, limit/2, int64(all.Len())))-20 {
				t.Fatalf("the last %d bytes after line %d are only %d", max, n, len(got))
			}
			if max >= 100 && !strings.HasPrefix(string(got), "line ") {
				t.Fatalf("it begins within a line: %.20q", got)
			}
		}
	}
	var size int64
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += st.Size()
	}
	if size > limit+2000 {
		t.Errorf("%d bytes are kept", size)
	}
}

func TestLogOfOneLongLine(t *testing.T) {
	l, err := OpenLog(t.TempDir(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.f.WriteString(strings.Repeat("x", 5000)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := l.Tail(100)
		if err != nil || string(got) != strings.Repeat("x", 100) {
			t.Errorf("got %q, %v", got, err)
		}
		if err := l.Trim(); err != nil {
			t.Fatal(err)
		}
	}
}
