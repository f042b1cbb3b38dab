//go:build linux || darwin

package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/testkit"
)

// The test program plays other programs where it finds one of these variables: a gateway
// that is killed while its hook runs, and a process that leaves the group of its hook.
const (
	victim = "TINE_TEST_GATEWAY"
	astray = "TINE_TEST_ASTRAY"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victim); dir != "" {
		p, err := New(Options{Dir: filepath.Join(dir, "hooks")})
		if err != nil {
			panic(err)
		}
		_, err = p.Run(context.Background(), staying(filepath.Join(dir, "pids"), "wait"), nil)
		panic(err)
	}
	if pids := os.Getenv(astray); pids != "" {
		f, err := os.OpenFile(pids+".part", os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = syscall.Setsid()
		}
		if err == nil {
			_, err = fmt.Fprintln(f, os.Getpid())
		}
		if err == nil {
			err = os.Rename(pids+".part", pids)
		}
		if err != nil {
			panic(err)
		}
		time.Sleep(time.Hour) // until it is killed
	}
	goleak.VerifyTestMain(m)
}

func shell(script string, args ...string) blueprint.Command {
	return blueprint.Command{Command: "sh", Args: append([]string{"-c", script, "hook"}, args...), Timeout: time.Minute}
}

// staying is a hook whose processes stay: one in its group, and one that has left it. Their
// ids are in a file when the rest of the script runs.
func staying(pids, rest string) blueprint.Command {
	return shell(`sleep 1000 & echo $$ $! >"$1.part"
`+astray+`=$1 "$2" &
while [ ! -e "$1" ]; do sleep 0.02; done
`+rest, pids, os.Args[0])
}

func programs(t *testing.T) *Programs {
	t.Helper()
	p, err := New(Options{Dir: filepath.Join(t.TempDir(), "hooks"), Environ: func() []string {
		return []string{"PATH=" + os.Getenv("PATH"), "HOME=/home/x", "TOKEN=gateway-secret"}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(p.dir); err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("folders are left: %v (%v)", left, err)
		}
	})
	return p
}

func TestHookGetsItsOwn(t *testing.T) {
	p := programs(t)
	c := shell(`cat; echo "|$1|$TOKEN|$OWN|$HOME|$(env | cut -d= -f1 | sort | tr '\n' ' ')|$PWD|$(pwd)"`, "an argument; $(x)")
	c.Env = map[string]string{"OWN": "own"}
	out, err := p.Run(t.Context(), c, []byte("the input"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "|")
	if !slices.Equal(got[:5], []string{"the input", "an argument; $(x)", "", "own", "/home/x"}) {
		t.Errorf("got %q", got)
	}
	if strings.Contains(got[5], "TOKEN") || !strings.HasPrefix(got[6], p.dir) || got[6] != got[7] {
		t.Errorf("variables %q, in %q and %q", got[5], got[6], got[7])
	}
}

func TestFailures(t *testing.T) {
	p := programs(t)
	slow := shell("exec sleep 1000")
	slow.Timeout = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		c           blueprint.Command
		why, inWord string
	}{
		"status":       {shell("echo out; echo words >&2; exit 3"), "it ended with exit status 3", "words\n"},
		"signal":       {shell("kill -9 $$"), "signal: killed", ""},
		"time":         {slow, "it took longer than 100ms", ""},
		"output":       {shell("trap '' PIPE; while :; do echo 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy'; done"), "it printed more than 2097152 bytes", ""},
		"many words":   {shell("yes | head -c 1000000 >&2; echo last >&2; exit 1"), "exit status 1", "y\nlast\n"},
		"no program":   {blueprint.Command{Command: "no-such-program", Timeout: time.Second}, `the program "no-such-program" is not on PATH; install it`, ""},
		"no such file": {blueprint.Command{Command: "/no/such", Timeout: time.Second}, "the program /no/such can't be run: no such file or directory; it must be there and executable", ""},
		"long":         {shell("true", strings.Repeat("x", 4<<20)), "read the parameters from its standard input", ""},
		"zero byte":    {blueprint.Command{Command: "sh", Env: map[string]string{"A": "\x00"}, Timeout: time.Second}, "the variable A has a zero byte", ""},
	} {
		out, err := p.Run(t.Context(), tt.c, []byte("x"))
		var f *Failure
		if !errors.As(err, &f) || !strings.Contains(f.Why, tt.why) || !strings.HasSuffix(f.Words, tt.inWord) || len(f.Words) > mostWords || len(out) > 0 {
			t.Errorf("%s: %q, %v, words %.100q", name, out, err, f.Words)
		}
	}
}

func TestInputMayBeLeftUnread(t *testing.T) {
	out, err := programs(t).Run(t.Context(), shell("echo '{}'"), make([]byte, 1<<20))
	if err != nil || string(out) != "{}\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// processes are those of the script staying.
func processes(t *testing.T, pids string) (all []procid.ID) {
	t.Helper()
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := procid.Look(pid); err == nil {
			all = append(all, s.ID)
		}
	}
	return all
}

func TestNothingIsLeft(t *testing.T) {
	for rest, want := range map[string]string{"": "", "wait": "it took longer than 5s"} {
		pids := filepath.Join(t.TempDir(), "pids")
		c := staying(pids, rest)
		c.Timeout = 5 * time.Second
		_, err := programs(t).Run(t.Context(), c, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", rest, err)
		}
		for _, id := range processes(t, pids) {
			if id.Lives() {
				t.Errorf("%q: process %d is left", rest, id.PID)
			}
		}
	}
}

func TestCallerGoesAway(t *testing.T) {
	p := programs(t)
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := p.Run(ctx, staying(pids, "wait"), nil)
		got <- err
	}()
	testkit.Eventually(t, "the hook runs", func() bool { _, err := os.Stat(pids); return err == nil })
	running := processes(t, pids)
	cancel()
	if err := testkit.Within(t, "the hook's end", got); err != context.Canceled {
		t.Errorf("%v", err)
	}
	for _, id := range running {
		if id.Lives() {
			t.Errorf("process %d is left", id.PID)
		}
	}
	if len(running) != 3 {
		t.Errorf("%d processes ran", len(running))
	}
}

func TestGatewayKilledWhileAHookRuns(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	gateway := exec.Command(os.Args[0])
	gateway.Env = append(os.Environ(), victim+"="+dir)
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the hook runs", func() bool { _, err := os.Stat(pids); return err == nil })
	running := processes(t, pids)
	gateway.Process.Kill()
	gateway.Wait()
	for _, id := range running {
		if !id.Lives() {
			t.Errorf("process %d has ended with the gateway", id.PID)
		}
	}
	if _, err := New(Options{Dir: filepath.Join(dir, "hooks")}); err != nil {
		t.Fatal(err)
	}
	for _, id := range running {
		if id.Lives() {
			t.Errorf("process %d is left after a restart", id.PID)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "hooks")); err != nil || len(left) > 0 || len(running) != 3 {
		t.Errorf("%d processes ran, and folders are left: %v (%v)", len(running), left, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	p := programs(t)
	var wg sync.WaitGroup
	for i := range 2 * mostAtOnce {
		wg.Go(func() {
			out, err := p.Run(t.Context(), shell("cat; echo $1", strconv.Itoa(i)), []byte("in"))
			if err != nil || string(out) != fmt.Sprintf("in%d\n", i) {
				t.Errorf("%d: %q, %v", i, out, err)
			}
		})
	}
	wg.Wait()
}
