//go:build linux || darwin

package hook

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// hosting is what hooks of this system share.
type hosting struct{ census family.Census }

// familyOf is how the processes of a hook are known: by the name of its folder.
func familyOf(dir string) family.Family {
	return family.Family{Token: filepath.Base(dir), Dir: family.RealPath(dir)}
}

// sweep ends the hooks of folders.
func (p *Programs) sweep(dirs []string) error {
	families := make([]family.Family, len(dirs))
	for i, dir := range dirs {
		families[i] = familyOf(dir)
	}
	return p.census.End(families...)
}

// run runs a hook until it ends, or ctx does.
func (p *Programs) run(ctx context.Context, c blueprint.Command, input []byte) ([]byte, error) {
	token := rand.Text()
	dir := filepath.Join(p.dir, token)
	// Before anything runs, so that a gateway that is killed now finds it.
	if err := folder.New(dir); err != nil {
		return nil, failure("no folder for it: %v", err)
	}
	ended := true
	defer func() {
		if ended { // otherwise the next gateway tries again
			p.remove(dir)
		}
	}()
	env := family.NewEnvironment(p.environ(), c.Env, dir, token)
	path, err := find(c.Command, env.Get("PATH"))
	if err != nil {
		return nil, failure("%v", err)
	}
	stdin, err := inputFile(dir, input)
	if err != nil {
		return nil, failure("no input for it: %v", err)
	}
	defer stdin.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, err := collect(mostOutput, func() { cancel(errOutput) })
	if err != nil {
		return nil, failure("no output for it: %v", err)
	}
	words, err := collect(mostWords, nil)
	if err != nil {
		out.end()
		return nil, failure("no output for it: %v", err)
	}
	cmd := exec.CommandContext(ctx, path, c.Args...)
	cmd.Dir, cmd.Env = dir, env.List()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, out.w, words.w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Start()
	cause := context.Cause(ctx)
	if err == nil {
		err = cmd.Wait()
		cause = context.Cause(ctx)
		// What it has left behind would go on, and keep its output open.
		now := time.Now()
		if endErr := errors.Join(family.EndGroup(cmd.Process.Pid, func() time.Time { return now }), p.census.End(familyOf(dir))); endErr != nil {
			ended = false
			p.log.Error("a hook can't be ended", "command", c.Command, "err", endErr)
		}
	}
	answer, said := out.end(), words.end()
	if len(answer) > mostOutput {
		cause = errOutput
	}
	if err := reason(err, cause); err != nil {
		return nil, &Failure{Why: err.Error(), Words: string(said)}
	}
	return answer, nil
}

var errOutput = fmt.Errorf("it printed more than %d bytes", mostOutput)

// reason says why a hook failed, which was stopped for a cause; nil if it did not.
func reason(err, cause error) error {
	var exit *exec.ExitError
	switch {
	case cause != nil:
		return cause
	case err == nil:
		return nil
	case errors.Is(err, syscall.E2BIG):
		return errors.New("its arguments are too long for the system; have it read the parameters from its standard input")
	case errors.As(err, &exit):
		return errors.New("it ended with " + exit.String())
	}
	return fmt.Errorf("it does not start: %w", err)
}

// inputFile is a file and no pipe, since the hook may leave it unread.
func inputFile(dir string, input []byte) (*os.File, error) {
	name := filepath.Join(dir, family.Stdin)
	if err := os.WriteFile(name, input, 0o600); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// A collector reads what a hook writes to a pipe.
type collector struct {
	r, w *os.File
	got  chan []byte
}

// collect keeps so many bytes, and calls over when there are more. Without over it keeps
// the last ones. The caller must end it.
func collect(most int, over func()) (*collector, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &collector{r, w, make(chan []byte, 1)}
	go func() { // ends with the pipe, which end sees to
		var kept []byte
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				n, err = there(r, buf)
			}
			if over == nil || len(kept) <= most {
				kept = append(kept, buf[:n]...)
			}
			switch excess := len(kept) - most; {
			case excess <= 0:
			case over != nil:
				over()
			default:
				kept = append(kept[:0], kept[excess:]...)
			}
			if err != nil {
				c.got <- kept
				return
			}
		}
	}()
	return c, nil
}

// there reads what is in a pipe whose deadline is over. On a machine that is slow enough
// the hook's words may not have been read by then.
func there(r *os.File, buf []byte) (n int, err error) {
	raw, err := r.SyscallConn()
	if err != nil {
		return 0, err
	}
	if failed := raw.Control(func(fd uintptr) { n, err = syscall.Read(int(fd), buf) }); failed != nil {
		return 0, failed
	}
	if n <= 0 {
		return 0, io.EOF
	}
	return n, nil
}

// end returns what was written.
func (c *collector) end() []byte {
	c.w.Close()
	c.r.SetReadDeadline(time.Now().Add(openTime))
	kept := <-c.got
	c.r.Close()
	return kept
}
