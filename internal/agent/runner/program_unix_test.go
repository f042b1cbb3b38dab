//go:build linux || darwin

package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestProgram(t *testing.T) {
	h := newHost(t, t.TempDir())
	plan := script(t, `cat; echo "args $*" >&2; env; echo "cwd $(pwd)"; cat "$2"; : >made; exit 3`, "one two", filepath.Join(h.root, "run_1", "extra"))
	plan.Env = map[string]string{"GIVEN": "yes"}
	plan.Stdin = []byte("hello\nworld\n")
	plan.Files = map[string][]byte{"extra": []byte("in a file")}
	p := begin(t, h, "run_1", plan)
	got := hear(t, p, 0, all)
	text := strings.Join(got.lines, "\n")
	testkit.Has(t, "what it told", text, "hello\nworld\n", "! args one two", "GIVEN=yes", "cwd "+plan.Dir, "in a file")
	testkit.Lacks(t, "what it told", text, "hidden", "GATEWAY")
	if got.exit.Status != 3 || got.exit.Signal != "" || !strings.HasPrefix(got.end.Result.Text, "hello\n") || !strings.HasPrefix(string(got.exit.Stderr), "args ") {
		t.Errorf("it ended with %+v", got.exit)
	}
	if st, err := os.Stat(filepath.Join(plan.Dir, "made")); err != nil || st.Mode().Perm()&0o022 != 0 {
		t.Errorf("what it made is %v, %v", st, err)
	}
	if st, err := os.Stat(p.dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("its folder is %v, %v", st, err)
	}
	if err := p.remove(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(h.root); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestInheritedFilesAreClosed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	fd, err := syscall.Dup(2) // inherited, as it would be from a careless parent
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	h := newHost(t, t.TempDir())
	got := hear(t, begin(t, h, "run_1", script(t, `for f in /proc/self/fd/*; do echo "$f"; done`)), 0, all)
	// The shell has the folder open while it expands the pattern.
	fds := slices.DeleteFunc(slices.Clone(got.lines), func(s string) bool { return !strings.HasPrefix(s, "/proc/") })
	if len(fds) > 4 {
		t.Errorf("it has open %v", fds)
	}
}

func TestEndings(t *testing.T) {
	h := newHost(t, t.TempDir())
	for n, tt := range []struct {
		script string
		want   executor.Exit
	}{
		{"exit 0", executor.Exit{}},
		{"echo oops >&2; exit 7", executor.Exit{Status: 7, Stderr: []byte("oops\n")}},
		{"kill -SEGV $$", executor.Exit{Status: 139, Signal: "SEGV"}},
		{"kill -KILL $$", executor.Exit{Status: 137, Signal: "KILL"}},
		{"kill -TERM $$", executor.Exit{Status: 143, Signal: "TERM"}},
		{"exit 255", executor.Exit{Status: 255}},
	} {
		got := hear(t, begin(t, h, fmt.Sprintf("run_%d", n), script(t, tt.script)), 0, all).exit
		if got.Status != tt.want.Status || got.Signal != tt.want.Signal || string(got.Stderr) != string(tt.want.Stderr) {
			t.Errorf("%q: %+v, want %+v", tt.script, got, tt.want)
		}
	}
}

func TestMistakesOfAPlan(t *testing.T) {
	h := newHost(t, t.TempDir())
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, plan := range map[string]executor.Plan{
		"no command":                  {Dir: dir},
		"no folder is given":          {Command: "sh"},
		"does not exist; make it":     {Command: "sh", Dir: dir + "/none"},
		`"frobnicate" is not on PATH`: {Command: "frobnicate", Dir: dir},
		"permission denied":           {Command: plain, Dir: dir},
		"is a directory":              {Command: dir, Dir: dir},
		"an argument":                 {Command: "sh", Args: []string{"a\x00b"}, Dir: dir},
		"can't be a variable":         {Command: "sh", Env: map[string]string{"A=B": ""}, Dir: dir},
		`"../x" can't be a file`:      {Command: "sh", Files: map[string][]byte{"../x": nil}, Dir: dir},
		`"status" can't be a file`:    {Command: "sh", Files: map[string][]byte{"status": nil}, Dir: dir},
		"arguments are too long":      {Command: "sh", Args: []string{"-c", ":", strings.Repeat("x", 4<<20)}, Dir: dir},
	} {
		if _, err := h.start("run_1", pass{}, plan); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, run := range []string{"", ".", "..", "a/b", ".hidden"} {
		if _, err := h.start(run, pass{}, executor.Plan{Command: "sh", Dir: dir}); err == nil {
			t.Errorf("a run %q was started", run)
		}
	}
	if left, _ := os.ReadDir(h.root); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	begin(t, h, "run_1", script(t, "exec sleep 1000"))
	if _, err := h.start("run_1", pass{}, script(t, ":")); err == nil {
		t.Error("a run was started twice")
	}
}

// Many run at once, half of them are stopped, and each ends once with all that it wrote.
func TestManyAtOnce(t *testing.T) {
	h := newHost(t, t.TempDir())
	var wg sync.WaitGroup
	for n := range 40 {
		p := begin(t, h, fmt.Sprintf("run_%d", n), script(t, `for i in 1 2 3; do echo $i; echo $i >&2; done; [ $1 = end ] || sleep 1000`, map[bool]string{true: "end", false: "stay"}[n%2 == 0]))
		lines := 0
		told := make(chan struct{}, 6)
		wg.Go(func() {
			end, err := p.follow(t.Context(), &listener{}, 0, func(events []executor.Event) error {
				for range events {
					told <- struct{}{}
				}
				lines += len(events)
				return nil
			})
			if err != nil || end.Err != nil || lines != 6 || n%2 == 0 && p.exit.Status != 0 {
				t.Errorf("run %d told %d lines and ended with %+v, %v", n, lines, end, err)
			}
			if err := p.remove(); err != nil {
				t.Error(err)
			}
		})
		if n%2 == 1 {
			wg.Go(func() {
				for range 6 {
					<-told
				}
				if err := p.stop(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if left, _ := os.ReadDir(h.root); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if len(h.notices.wakes) > 0 {
		t.Errorf("%d folders are watched", len(h.notices.wakes))
	}
}

// What a program has started in the background ends with it.
func TestNothingOutlivesTheProgram(t *testing.T) {
	h := newHost(t, t.TempDir())
	plan := script(t, `sleep 1000 & echo $! >child; `+detached+`; until [ -s detached ]; do sleep 0.01; done; echo done`)
	got := hear(t, begin(t, h, "run_1", plan), 0, all)
	if !slices.Contains(got.lines, "done") || got.exit.Status != 0 {
		t.Errorf("it told %q and ended with %+v", got.lines, got.exit)
	}
	wantGone(t, pidIn(t, filepath.Join(plan.Dir, "child")))
	wantGone(t, pidIn(t, filepath.Join(plan.Dir, "detached")))
}

// detached starts a process that has left the group.
var detached = map[string]string{
	"linux":  `setsid sh -c 'trap "" TERM HUP; echo $$ >detached; while :; do sleep 1; done' >/dev/null 2>&1 &`,
	"darwin": `perl -e 'use POSIX; POSIX::setsid(); $SIG{TERM}="IGNORE"; open F,">detached"; print F "$$\n"; close F; sleep 1 while 1' >/dev/null 2>&1 &`,
}[runtime.GOOS] + " :"

func TestStop(t *testing.T) {
	h := newHost(t, t.TempDir())
	h.grace = testkit.Patience
	t.Run("by the message", func(t *testing.T) {
		plan := script(t, `while read line; do echo "$line"; [ "$line" = shutdown ] && exit 4; done`)
		plan.Stdin, plan.Persistent = []byte("first\n"), true
		p := begin(t, h, "run_1", plan)
		heardAll := make(chan heard, 1)
		told := make(chan struct{}, 9)
		go func() { heardAll <- hearing(t, p, told) }()
		testkit.Within(t, "the first line", told)
		if err := p.stop(t.Context(), []byte("shutdown\n")); err != nil {
			t.Fatal(err)
		}
		if got := testkit.Within(t, "the end", heardAll); got.exit.Status != 4 || !slices.Equal(got.lines, []string{"first", "shutdown"}) {
			t.Errorf("it told %q and ended with %+v", got.lines, got.exit)
		}
	})
	t.Run("by SIGTERM", func(t *testing.T) {
		p := begin(t, h, "run_2", script(t, `trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.01; done`))
		hear(t, p, 0, 1)
		if err := p.stop(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := hear(t, p, 1, all); got.exit.Status != 5 || !slices.Contains(got.lines, "asked") {
			t.Errorf("it told %q and ended with %+v", got.lines, got.exit)
		}
	})
	t.Run("as it begins", func(t *testing.T) {
		for i := range 20 {
			p := begin(t, h, fmt.Sprintf("run_5%d", i), script(t, "sleep 3600"))
			if err := p.stop(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if got := hear(t, p, 0, all); got.exit.Signal != "TERM" {
				t.Fatalf("program %d ended with %+v", i, got.exit)
			}
		}
	})
	t.Run("that ignores all", func(t *testing.T) {
		h := newHost(t, t.TempDir())
		h.grace = 1
		plan := script(t, `trap '' TERM HUP INT; echo $$ >self; `+detached+`; until [ -s detached ]; do sleep 0.01; done; echo ready; while :; do sleep 1; done`)
		plan.Persistent = true
		p := begin(t, h, "run_3", plan)
		hear(t, p, 0, 1)
		if err := p.stop(t.Context(), []byte("shutdown\n")); err != nil {
			t.Fatal(err)
		}
		wantGone(t, pidIn(t, filepath.Join(plan.Dir, "self")))
		wantGone(t, pidIn(t, filepath.Join(plan.Dir, "detached")))
		if got := hear(t, p, 1, all); got.exit.Status != -1 || got.exit.Signal != "KILL" {
			t.Errorf("it ended with %+v", got.exit)
		}
		if err := p.stop(t.Context(), nil); err != nil {
			t.Errorf("stopped again: %v", err)
		}
	})
	t.Run("that is stopped", func(t *testing.T) {
		plan := script(t, `echo $$ >self; trap 'exit 6' TERM; kill -STOP $$; while :; do sleep 0.01; done`)
		p := begin(t, h, "run_4", plan)
		id, err := procid.Look(pidIn(t, filepath.Join(plan.Dir, "self")))
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it is stopped", id.Stands)
		if err := p.stop(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := hear(t, p, 0, all); got.exit.Status != 6 {
			t.Errorf("it ended with %+v", got.exit)
		}
	})
}

// hearing is hear in a goroutine of its own, and says when something was told.
func hearing(t *testing.T, p *program, told chan<- struct{}) (h heard) {
	end, err := p.follow(t.Context(), &listener{}, 0, func(events []executor.Event) error {
		for _, e := range events {
			h.lines = append(h.lines, strings.TrimSuffix(strings.TrimPrefix(string(e.Data), `{"text":"`), `"}`))
			told <- struct{}{}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	h.end, h.exit = end, p.exit
	return h
}

// A persistent program does one turn after the other, each for a run of its own.
func TestTurns(t *testing.T) {
	h := newHost(t, t.TempDir())
	big := strings.Repeat("x", 300_000) // more than a pipe holds
	plan := script(t, `while read line; do echo "got ${#line}"; echo "remark ${#line}" >&2; echo turn; done`)
	plan.Stdin, plan.Persistent = []byte(big+"\n"), true
	p := begin(t, h, "run_1", plan)
	want := func(p *program, lines ...string) {
		t.Helper()
		got := hear(t, p, 0, all)
		slices.Sort(got.lines)
		if !got.end.Goes || got.end.Result.Text != "turned" || !slices.Equal(got.lines, lines) {
			t.Errorf("a turn told %q and ended with %+v, want %q", got.lines, got.end, lines)
		}
	}
	want(p, "! remark 300000", "got 300000", "turn")
	if err := p.next("run_2", []byte("12345\n")); err != nil {
		t.Fatal(err)
	}
	want(p, "! remark 5", "got 5", "turn")
	want(p, "! remark 5", "got 5", "turn") // the same turn again
	p.leave()

	// The next gateway knows it by its last run.
	h = newHost(t, h.root)
	if _, err := h.adopt("run_1"); err == nil {
		t.Error("the first run has a program")
	}
	p = adopted(t, h, "run_2")
	want(p, "! remark 5", "got 5", "turn")
	if err := p.next("run_3", []byte("1234567\n")); err != nil {
		t.Fatal(err)
	}
	want(p, "! remark 7", "got 7", "turn")
	p.kill()
	testkit.Within(t, "its end", p.ended)
	if err := p.next("run_4", []byte("x\n")); err == nil {
		t.Error("a program that has ended took input")
	}
}

// The first input is fed by itself, and nothing is written into the middle of it.
func TestInputThatIsNotRead(t *testing.T) {
	h := newHost(t, t.TempDir())
	h.grace = 1
	plan := script(t, "exec sleep 1000")
	plan.Stdin, plan.Persistent = []byte(strings.Repeat("x", 1<<20)), true
	p := begin(t, h, "run_1", plan)
	if err := p.write([]byte("more\n"), 1); err == nil || !strings.Contains(err.Error(), "has not read its first input") {
		t.Errorf("got %v", err)
	}
	if err := p.stop(t.Context(), []byte("shutdown\n")); err != nil {
		t.Fatal(err)
	}

	plan.Stdin = nil
	p = begin(t, h, "run_2", plan)
	testkit.Eventually(t, "its first input is fed", func() bool { return p.write([]byte("x\n"), testkit.Patience) == nil })
	if err := p.write([]byte(strings.Repeat("x", 1<<20)), 1e6); err == nil {
		t.Error("a program that reads nothing took a megabyte")
	}
}
