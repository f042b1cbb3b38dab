package drivertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

// execer starts an instance beside which commands can be run.
func (s *Suite) execer(t *testing.T) (driver.Spec, driver.Instance, driver.Execer) {
	t.Helper()
	spec := s.Spec(t, s.Program(t))
	inst := s.StartSpec(t, s.New(0), spec)
	e, ok := inst.(driver.Execer)
	if !ok {
		if runtime.GOOS == "windows" {
			t.Skip("the driver runs no commands here")
		}
		t.Skip("the driver runs no commands") // GOOS does not matter to the others
	}
	return spec, inst, e
}

func (s *Suite) beside(t testing.TB, how string, args ...string) []string {
	program := s.Beside
	if program == "" {
		program = s.Program(t)
	}
	return append([]string{program, "beside", how}, args...)
}

func (s *Suite) testExec(t *testing.T) {
	spec, inst, e := s.execer(t)
	p := Dial(t, inst)
	cwd := s.Cwd
	if cwd == "" {
		cwd = "/"
	}
	var out, errOut bytes.Buffer
	exit, err := e.Exec(ctx(t), spec, driver.Command{
		Argv: s.beside(t, "report", "a b", "c"), Env: map[string]string{"BESIDE": "x=y"}, Cwd: cwd,
		Stdin: strings.NewReader("some input"), Stdout: &out, Stderr: &errOut,
	})
	want := fmt.Sprintf("args %q\nenv %q\ncwd %q\nin %q\n", []string{"a b", "c"}, "x=y", cwd, "some input")
	if err != nil || exit != (driver.Exit{Code: 7}) || out.String() != want || errOut.String() != "an error\n" {
		t.Errorf("exit %+v, %v\n%s\n%s\nwant %s", exit, err, out.String(), errOut.String(), want)
	}
	if exit, err := e.Exec(ctx(t), spec, driver.Command{Argv: s.beside(t, "report")}); err != nil || exit.Code != 7 {
		t.Errorf("without files: exit %+v, %v", exit, err)
	}
	exit, err = e.Exec(ctx(t), spec, driver.Command{Argv: s.beside(t, "die")})
	if err != nil || exit != (driver.Exit{Signal: "KILL"}) && exit != (driver.Exit{Code: 128 + 9}) {
		t.Errorf("killed: exit %+v, %v", exit, err)
	}
	var all sync.WaitGroup
	for range s.times(8, 4) {
		all.Go(func() {
			if exit, err := e.Exec(ctx(t), spec, driver.Command{Argv: s.beside(t, "report"), Stdin: strings.NewReader("x")}); err != nil || exit.Code != 7 {
				t.Errorf("at once: exit %+v, %v", exit, err)
			}
		})
	}
	all.Wait()
	if got := p.Call(t, "echo", map[string]any{"text": "still here"}); got != "still here" {
		t.Errorf("the server answers %q", got)
	}
}

func (s *Suite) testExecRefused(t *testing.T) {
	spec, _, e := s.execer(t)
	for name, c := range map[string]driver.Command{
		"no such program": {Argv: []string{"/no/such/program"}},
		"no such name":    {Argv: []string{"no-such-program"}},
		"no such folder":  {Argv: s.beside(t, "report"), Cwd: "/no/such/folder"},
		"no such user":    {Argv: s.beside(t, "report"), User: "no-such-user"},
	} {
		if exit, err := e.Exec(ctx(t), spec, c); err == nil && exit.Code != 126 && exit.Code != 127 {
			t.Errorf("%s: exit %+v", name, exit)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Exec(gone, spec, driver.Command{Argv: s.beside(t, "report")}); !errors.Is(err, context.Canceled) {
		t.Errorf("with no time: %v", err)
	}
}

// until is a writer that calls a function when a text was written.
type until struct {
	mu   sync.Mutex
	text string
	seen []byte
	then func()
}

func (u *until) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = append(u.seen, b...)
	if u.then != nil && bytes.Contains(u.seen, []byte(u.text)) {
		u.then()
		u.then = nil
	}
	return len(b), nil
}

// wantRunning waits until so many processes with a mark run, by what the server sees.
func wantRunning(t *testing.T, p *Peer, mark, want string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	testkit.Eventually(t, want+" processes with the mark "+mark, func() bool {
		return p.Call(t, "running", map[string]any{"text": mark}) == want
	})
}

func (s *Suite) testExecEnded(t *testing.T) {
	spec, inst, e := s.execer(t)
	p := Dial(t, inst)
	mark := "mark-" + rand.Text()
	c, cancel := context.WithCancel(ctx(t))
	exit, err := e.Exec(c, spec, driver.Command{Argv: s.beside(t, "family", mark), Stdout: &until{text: "ready", then: cancel}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: exit %+v, %v", exit, err)
	}
	wantRunning(t, p, mark, "0")

	mark = "mark-" + rand.Text()
	exit, err = e.Exec(ctx(t), spec, driver.Command{Argv: s.beside(t, "family", mark), Stdout: failing{}})
	if err == nil {
		t.Errorf("output that can't be written: exit %+v", exit)
	}
	wantRunning(t, p, mark, "0")

	mark = "mark-" + rand.Text()
	var out bytes.Buffer
	exit, err = e.Exec(ctx(t), spec, driver.Command{Argv: s.beside(t, "leave", mark), Stdout: &out})
	if err != nil || exit != (driver.Exit{}) || out.String() != "left\n" {
		t.Errorf("a child that is left: exit %+v, %v, %q", exit, err, out.String())
	}
	wantRunning(t, p, mark, "0")
	if got := p.Call(t, "echo", map[string]any{"text": "still here"}); got != "still here" {
		t.Errorf("the server answers %q", got)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func (s *Suite) testExecCrash(t *testing.T) {
	for how, end := range map[string]func(inst driver.Instance){
		"stop":  func(inst driver.Instance) { inst.Stop(context.Background()) },
		"crash": func(inst driver.Instance) { s.Kill(t, inst) },
	} {
		if how == "crash" && s.Kill == nil {
			continue
		}
		spec, inst, e := s.execer(t)
		Dial(t, inst)
		mark := "mark-" + rand.Text()
		ready := make(chan struct{})
		failed := make(chan error, 1)
		go func() {
			_, err := e.Exec(ctx(t), spec, driver.Command{Argv: s.beside(t, "family", mark), Stdout: &until{text: "ready", then: func() { close(ready) }}})
			failed <- err
		}()
		testkit.Within(t, "the command", ready)
		end(inst)
		if err := testkit.Within(t, "the end of the command", failed); err == nil {
			t.Errorf("%s: the command has no error", how)
		}
		if n := HostRunning(mark); n != 0 {
			t.Errorf("%s: %d processes of the command are left", how, n)
		}
		if _, err := e.Exec(ctx(t), spec, driver.Command{Argv: s.beside(t, "report")}); err == nil {
			t.Errorf("%s: a command is run beside an instance that has ended", how)
		}
		s.Stop(t, inst)
	}
}

func (s *Suite) testExecSpill(t *testing.T) {
	spec, _, e := s.execer(t)
	n := int64(s.times(1<<30, 64<<20))
	var got counting
	exit, err := e.Exec(ctx(t), spec, driver.Command{Argv: s.beside(t, "spill", fmt.Sprint(n)), Stdout: &got})
	if err != nil || exit != (driver.Exit{}) || int64(got) != n {
		t.Errorf("%d bytes of %d came, exit %+v, %v", got, n, exit, err)
	}
}

type counting int64

func (c *counting) Write(b []byte) (int, error) {
	*c += counting(len(b))
	return len(b), nil
}

// OrphanCommand is Orphan for a gateway that dies while a command runs, whose processes
// have a mark among their arguments.
func (s *Suite) OrphanCommand(t testing.TB, mark string) driver.Handle {
	t.Helper()
	return s.orphan(t, order{Spec: s.Spec(t, s.Program(t)), Beside: s.beside(t, "family", mark)})
}

// testExecOrphan kills a gateway while a command runs: the next one has the instance, and
// nothing of the command.
func (s *Suite) testExecOrphan(t *testing.T) {
	d := s.New(0)
	if !d.Info().Adopts || s.Mortal {
		t.Skip("instances end with the gateway; " + runtime.GOOS)
	}
	if _, _, e := s.execer(t); e == nil {
		return
	}
	mark := "mark-" + rand.Text()
	h := s.OrphanCommand(t, mark)
	inst, err := d.Adopt(ctx(t), h, nil)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	t.Cleanup(func() { inst.Stop(context.Background()) })
	p := Dial(t, inst)
	wantRunning(t, p, mark, "0")
	s.Stop(t, inst)
}
