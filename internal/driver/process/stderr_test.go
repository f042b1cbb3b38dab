package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

func TestStderrKeepsTheEnd(t *testing.T) {
	dir := t.TempDir()
	const limit = 10_000
	l, err := openStderr(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	// The child's own opening.
	w, err := os.OpenFile(filepath.Join(dir, stderrName), os.O_WRONLY|os.O_APPEND, 0)
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
		if err := l.trim(); err != nil {
			t.Fatal(err)
		}
		for _, max := range []int64{1, 5, 100, limit / 2, limit, 10 * limit} {
			got, err := l.tail(max)
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

func TestStderrOfOneLongLine(t *testing.T) {
	l, err := openStderr(t.TempDir(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if _, err := l.f.WriteString(strings.Repeat("x", 5000)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := l.tail(100)
		if err != nil || string(got) != strings.Repeat("x", 100) {
			t.Errorf("got %q, %v", got, err)
		}
		if err := l.trim(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoisyServerIsCut(t *testing.T) {
	const limit = 64 << 10
	inst := suite.Start(t, New(Options{LogLimit: limit}))
	p := drivertest.Dial(t, inst)
	for range 3 {
		p.Call(t, "noise", map[string]any{"bytes": 4 * limit})
		for over := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			st, err := os.Stat(filepath.Join(inst.Handle().Dir, stderrName))
			if err == nil && st.Size() <= limit/2 {
				break
			}
			if time.Now().After(over) {
				t.Fatalf("the log stays: %v, %v", st, err)
			}
		}
	}
	p.Call(t, "log", map[string]any{"text": "the last line"})
	r, err := inst.Logs(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<20)
	n, _ := r.Read(b)
	if got := string(b[:n]); !strings.HasSuffix(got, "the last line\n") || len(got) > limit || len(got) < limit/4 {
		t.Errorf("%d bytes are kept, ending in %.100q", len(got), got[max(0, len(got)-100):])
	}
}
