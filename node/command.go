package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Command runs a program and speaks with it over its standard input and output.
// The program is started anew for each connection. For its environment or folder
// pass [Connect] a function that returns a [mcp.CommandTransport].
//
// The program ends with the connection, and what it has started does, too, on Windows
// only the program itself: its input is closed, and what does not end by itself within
// seconds is terminated, then killed. On Unix the program has a process group of its own,
// which Ctrl-C does not reach: catch it, and close the server. Lines of its output that
// are no JSON are skipped.
func Command(name string, args ...string) func() (mcp.Transport, error) {
	return func() (mcp.Transport, error) {
		return &mcp.CommandTransport{Command: exec.Command(name, args...), TerminateDuration: 2 * time.Second}, nil
	}
}

// A process is a running command. The SDK's own transport has a limit of 16 MiB to a
// message that can't be changed, and does not say what a program that failed
// printed.
type process struct {
	cmd    *exec.Cmd
	group  bool // it has a process group of its own
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *tail
	grace  time.Duration
	lines  meter

	pending []byte // of the line that is being read
	long    []byte // the line, where it is long
	stray   tail   // what it wrote to its standard output and is no message

	left    atomic.Bool // its output ended before it was to end
	hurried atomic.Bool // it gets less time to end
	killed  bool        // it had to be told to end
	once    sync.Once
	err     error
}

func startCommand(t *mcp.CommandTransport) (*process, error) {
	p := &process{cmd: t.Command, grace: t.TerminateDuration, lines: meter{limit: maxMessage}}
	p.group = ownGroup(p.cmd)
	if p.grace <= 0 {
		p.grace = 5 * time.Second
	}
	if p.cmd.Stderr == nil {
		p.stderr = new(tail)
		p.cmd.Stderr = p.stderr
	}
	// A child of the program may hold its standard error open after its end.
	if p.cmd.WaitDelay == 0 {
		p.cmd.WaitDelay = time.Second
	}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdout = bufio.NewReaderSize(out, lineHead)
	return p, p.cmd.Start()
}

func (p *process) Write(b []byte) (int, error) {
	n, err := p.stdin.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.left.Store(true)
	}
	return n, err
}

// Close ends the program, and returns when it has ended.
func (p *process) Close() error {
	p.once.Do(func() {
		p.stdin.Close()
		ended := make(chan error, 1)
		go func() { ended <- p.cmd.Wait() }()
		before, grace := p.grace, p.grace
		if p.hurried.Load() {
			before, grace = 0, min(grace, time.Second/2)
			if p.left.Load() { // it is about to end by itself
				before = grace
			}
		}
		defer p.endGroup(grace)
		for _, stop := range []struct {
			after time.Duration
			now   func()
		}{{before, p.terminate}, {grace, p.kill}} {
			select {
			case p.err = <-ended:
				return
			case <-time.After(stop.after):
				p.killed = true
				stop.now()
			}
		}
		p.err = <-ended
	})
	var exit *exec.ExitError
	if errors.As(p.err, &exit) || errors.Is(p.err, exec.ErrWaitDelay) {
		return nil // how it ended does not matter to who ended it
	}
	return p.err
}

// endGroup ends what the program has started and left behind.
func (p *process) endGroup(grace time.Duration) {
	if !p.group || !p.groupLives() {
		return
	}
	p.terminate()
	for end := time.Now().Add(grace); p.groupLives() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // nothing announces the end of a group
	}
	p.kill()
}

// explain ends the program, and adds to err how it ended if that was by itself, and
// what it printed last.
func (p *process) explain(err error) error {
	_ = p.Close()
	if p.left.Load() && !p.killed && p.cmd.ProcessState != nil {
		err = fmt.Errorf("%w; the program ended: %v", err, p.cmd.ProcessState)
	}
	if said := p.stderr.String(); said != "" {
		err = fmt.Errorf("%w; it printed: %s", err, said)
	}
	if said := p.stray.String(); said != "" {
		err = fmt.Errorf("%w; to its standard output, which is for messages, it wrote: %s", err, said)
	}
	return err
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - tailSize; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
