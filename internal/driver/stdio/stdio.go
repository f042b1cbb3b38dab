// Package stdio is the standard input and output of a command that a driver runs beside
// a server: three pipes, and what copies between them and the caller.
package stdio

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
)

// Pipes are those of one command.
type Pipes struct {
	theirs  [3]*os.File
	ours    [3]*os.File
	c       driver.Command
	copying sync.WaitGroup
	copied  chan struct{} // closed when the output is at its end, or could not be written

	mu     sync.Mutex
	failed error
}

// New makes the pipes of a command. Close closes them.
func New(c driver.Command) (*Pipes, error) {
	p := &Pipes{c: c, copied: make(chan struct{})}
	for n := range p.theirs {
		r, w, err := os.Pipe()
		if err != nil {
			p.Close()
			return nil, err
		}
		if n == 0 {
			p.theirs[n], p.ours[n] = r, w
		} else {
			p.theirs[n], p.ours[n] = w, r
		}
	}
	return p, nil
}

// Files are the command's ends: its input, output and error output.
func (p *Pipes) Files() []*os.File { return p.theirs[:] }

// Begin copies from now on. Fail is called when output can't be handed over, so that the
// command would wait for ever.
func (p *Pipes) Begin(fail func()) {
	if p.c.Stdin == nil {
		p.ours[0].Close()
	} else {
		in := p.ours[0]
		go func() { // ends with the input, or with the command, whose end closes the pipe
			_, _ = io.Copy(in, p.c.Stdin)
			in.Close()
		}()
	}
	for n, w := range map[int]io.Writer{1: p.c.Stdout, 2: p.c.Stderr} {
		if w == nil {
			w = io.Discard
		}
		out := p.ours[n]
		p.copying.Go(func() {
			if _, err := io.Copy(onlyWriter{w}, out); err != nil && !errors.Is(err, os.ErrClosed) {
				p.mu.Lock()
				p.failed = errors.Join(p.failed, err)
				p.mu.Unlock()
				fail()
			}
		})
	}
	go func() {
		p.copying.Wait()
		close(p.copied)
	}()
}

// onlyWriter keeps io.Copy from other ways of copying: one that takes a buffer of its
// own would not see how much at once the caller wants.
type onlyWriter struct{ io.Writer }

// Copied is closed when all output was handed over.
func (p *Pipes) Copied() <-chan struct{} { return p.copied }

// Failed is why output could not be handed over.
func (p *Pipes) Failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// Handed closes our copies of the command's ends, once it has them or has ended: the end
// of its output is not seen before. Twice is fine.
func (p *Pipes) Handed() {
	for _, f := range p.theirs {
		if f != nil {
			f.Close()
		}
	}
}

// Close closes the pipes. What was not read by then is lost. Twice is fine.
func (p *Pipes) Close() {
	p.Handed()
	for _, f := range p.ours {
		if f != nil {
			f.Close()
		}
	}
}
