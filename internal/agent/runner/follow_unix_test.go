//go:build linux || darwin

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestLongLines(t *testing.T) {
	h := newHost(t, t.TempDir())
	h.limits.line = 100_000
	fits, long := strings.Repeat("a", 100_000), strings.Repeat("b", 100_001)
	plan := script(t, `cat; printf %s "$(head -c 100002 stdin2)"`)
	plan.Stdin = []byte("one\n" + fits + "\n" + long + "\n\ntwo\n")
	if err := os.WriteFile(filepath.Join(plan.Dir, "stdin2"), []byte(strings.Repeat("c", 100_002)), 0o600); err != nil {
		t.Fatal(err)
	}
	got := hear(t, begin(t, h, "run_1", plan), 0, all)
	want := []string{
		"one", fits[:executor.MaxText],
		"! a line of 100001 bytes on standard output is longer than 100000 bytes and was left out",
		"", "two",
		"! a line of 100002 bytes on standard output is longer than 100000 bytes and was left out",
	}
	if !slices.Equal(got.lines, want) || got.exit.Long != 2 {
		t.Errorf("it told %.300q, and %d lines were too long", got.lines, got.exit.Long)
	}
}

func TestTooMuchOutput(t *testing.T) {
	for what, redirect := range map[string]string{"standard output": "", "standard error": " >&2"} {
		t.Run(what, func(t *testing.T) {
			h := newHost(t, t.TempDir())
			h.limits.output, h.limits.errors, h.limits.events = 1<<20, 1<<20, 1000
			p := begin(t, h, "run_1", script(t, "exec yes a line of text"+redirect))
			got := hear(t, p, 0, all)
			var e *api.Error
			if !errors.As(got.end.Err, &e) || e.Kind != api.KindTool || !strings.Contains(e.Message, "more than 1048576 bytes to its "+what) {
				t.Errorf("it ended with %v", got.end.Err)
			}
			if len(got.lines) != 1001 || !strings.Contains(got.lines[1000], "more than 1000 events") {
				t.Errorf("it told %d events, the last %q", len(got.lines), got.lines[len(got.lines)-1])
			}
			testkit.Within(t, "its end", p.ended)
			if again := hear(t, adopted(t, h, "run_1"), 990, all); !slices.Equal(again.lines, got.lines[990:]) || again.end.Err == nil {
				t.Errorf("followed again it told %q and ended with %v", again.lines, again.end.Err)
			}
		})
	}
}

// Nobody follows it, and it is ended all the same.
func TestTooMuchOutputUnheard(t *testing.T) {
	h := newHost(t, t.TempDir())
	h.limits.output = 1 << 20
	p := begin(t, h, "run_1", script(t, "yes | head -c 1100000; exec sleep 1000"))
	testkit.Within(t, "its end", p.ended)
}

func TestWhatIsKept(t *testing.T) {
	h := newHost(t, t.TempDir())
	h.limits.kept, h.limits.tail, h.limits.event = 10, 12, 100
	got := hear(t, begin(t, h, "run_1", script(t, `echo 0123456789abcdef; echo 0123456789abcdef >&2; printf %0200d 7`)), 0, all)
	if string(got.exit.Stdout) != "0123456789" || !got.exit.Cut || string(got.exit.Stderr) != "56789abcdef\n" {
		t.Errorf("kept is %+v", got.exit)
	}
	testkit.Has(t, "what it told", strings.Join(got.lines, "\n"), "has 211 bytes of data, more than 100")
}

// Where the system tells of no changes the follower looks by itself.
func TestWithoutNotices(t *testing.T) {
	h := newHost(t, t.TempDir())
	h.notices.close()
	h.notices.watcher = nil
	got := hear(t, begin(t, h, "run_1", script(t, "echo one; sleep 0.2; echo two")), 0, all)
	if !slices.Equal(got.lines, []string{"one", "two"}) {
		t.Errorf("it told %q", got.lines)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	h := newHost(t, t.TempDir())
	p := begin(t, h, "run_1", script(t, "exec sleep 1000"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.follow(ctx, &listener{}, 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type panicker struct{ listener }

func (*panicker) Line([]byte) []executor.Event { panic("a mistake") }

func TestReaderThatPanics(t *testing.T) {
	h := newHost(t, t.TempDir())
	end, err := begin(t, h, "run_1", script(t, "echo line")).follow(t.Context(), &panicker{}, 0, nil)
	var e *api.Error
	if err != nil || !errors.As(end.Err, &e) || e.Kind != api.KindInfrastructure {
		t.Errorf("got %+v, %v", end, err)
	}
}

// Output that a power cut has shortened is not taken for all.
func TestLostOutput(t *testing.T) {
	h := newHost(t, t.TempDir())
	p := begin(t, h, "run_1", script(t, "echo one; echo two"))
	hear(t, p, 0, all)
	if err := os.Truncate(filepath.Join(p.dir, outputName), 3); err != nil {
		t.Fatal(err)
	}
	if got := hear(t, adopted(t, h, "run_1"), 0, all); got.end.Err == nil || !strings.Contains(got.end.Err.Error(), "is lost") {
		t.Errorf("it ended with %+v", got.end)
	}
}

// Every way to cut a reading in two gives the same lines.
func TestTap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	text := "a\n\nbb\n" + strings.Repeat("c", 40_000) + "\nlast"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(tp *tap, to int64, all bool) (lines []string) {
		for {
			more, err := tp.read(to, all, func(b []byte, long int64) bool {
				lines = append(lines, fmt.Sprint(len(b), long))
				return false
			})
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				return lines
			}
		}
	}
	for _, limit := range []int{50_000, 30_000, 3} {
		open := func() *tap {
			tp, err := openTap(path, &mark{}, 1<<20, limit)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(tp.close)
			return tp
		}
		whole := read(open(), -1, true)
		for _, cut := range []int64{0, 2, 3, 6, 40_007, int64(len(text))} {
			tp := open()
			got := read(tp, cut, true)
			if tp.at.pos != cut {
				t.Errorf("read to %d, it is at %d", cut, tp.at.pos)
			}
			if got = append(got, read(tp, -1, true)...); !slices.Equal(got, whole) {
				t.Errorf("cut at %d: %q, want %q", cut, got, whole)
			}
		}
	}
}
