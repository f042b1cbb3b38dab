package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end when asked; Tine drains for
// ten seconds at most.
const stopGrace = 12 * time.Second

// launcher starts processes from one thread that lives as long as the harness.
// The kernel ties a child's death signal to the thread that started it, and Go
// ends threads when it likes.
type launcher struct {
	jobs chan func()
	wg   sync.WaitGroup
}

func newLauncher() *launcher {
	l := &launcher{jobs: make(chan func())}
	l.wg.Go(func() {
		runtime.LockOSThread()
		for job := range l.jobs {
			job()
		}
	})
	return l
}

func (l *launcher) start(cmd *exec.Cmd) error {
	result := make(chan error)
	l.jobs <- func() { result <- cmd.Start() }
	return <-result
}

// close ends the thread, and with it whatever it started and nobody stopped.
func (l *launcher) close() {
	close(l.jobs)
	l.wg.Wait()
}

// process is one that the harness started and will end.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string // path of its standard error
	stdin  io.WriteCloser
	stdout io.ReadCloser
	exited chan struct{} // closed when it has ended, after err is set
	err    error
}

// launch starts a process whose standard error goes to a file in dir. With
// piped its standard input and output are the caller's, who must read the
// output to its end.
func launch(l *launcher, dir, name string, piped bool, path string, args ...string) (*process, error) {
	return launchWith(l, dir, name, piped, dieWithUs, path, args...)
}

// launchWith is launch with another way to end when the harness is killed.
func launchWith(l *launcher, dir, name string, piped bool, prepare func(*exec.Cmd), path string, args ...string) (*process, error) {
	p := &process{
		name:   name,
		cmd:    exec.Command(path, args...),
		log:    filepath.Join(dir, name+".log"),
		exited: make(chan struct{}),
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	p.cmd.Stderr = log
	prepare(p.cmd)
	if !piped {
		p.cmd.Stdout = log
	} else if err := p.pipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := l.start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if piped {
		// The child has its own ends now; ours must go for it to see the end.
		p.cmd.Stdin.(*os.File).Close()
		p.cmd.Stdout.(*os.File).Close()
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// pipe makes plain pipes. Those of os/exec are closed by Wait, which would cut
// off output not yet read.
func (p *process) pipe() error {
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, inR.Close(), inW.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout = inR, outW
	p.stdin, p.stdout = inW, outR
	return nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks, then kills, and returns when the process is gone.
func (p *process) stop() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		_ = p.cmd.Process.Kill() // Windows knows no SIGTERM; elsewhere it is gone already
	}
	select {
	case <-p.exited:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// explain adds to an error how the process ended, if it did, and its last words.
func (p *process) explain(err error) error {
	select {
	case <-p.exited:
		err = fmt.Errorf("%s ended (%v): %w", p.name, p.err, err)
	default:
		err = fmt.Errorf("%s: %w", p.name, err)
	}
	text, rerr := os.ReadFile(p.log)
	if rerr != nil || len(text) == 0 {
		return err
	}
	return fmt.Errorf("%w\n--- the end of its log:\n%s", err, text[max(0, len(text)-2000):])
}

// alive returns a context that ends with the process.
func (p *process) alive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.exited:
			cancel(errors.New("it ended early"))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
