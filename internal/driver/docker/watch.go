package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/go-units"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// listener reads what a container writes and no stream reads: its standard error, and
// its output where that is no message.
type listener struct {
	res    client.ContainerAttachResult
	in     demux
	output bool
}

func (e *engine) listen(ctx context.Context, container string, output bool) (*listener, error) {
	res, err := e.cli.ContainerAttach(ctx, container, client.ContainerAttachOptions{Stream: true, Stdout: output, Stderr: true})
	if err != nil {
		return nil, e.explain("attach to the container", err)
	}
	return &listener{res: res, in: demux{r: res.Reader}, output: output}, nil
}

func (l *listener) close() { l.res.Close() }

// copyTo reads until the end of the connection.
func (l *listener) copyTo(w io.Writer) error {
	buf := make([]byte, 4<<10)
	for {
		of, err := l.in.next()
		if err != nil {
			return err
		}
		if of == stdcopy.Systemerr {
			return l.in.systemError()
		}
		n, err := l.in.read(buf)
		if err != nil {
			return err
		}
		if of != stdcopy.Stderr && !l.output {
			continue // Podman sends it all the same
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// exit is how a container ended.
type exit struct {
	state    *container.State // nil where it is not there any more
	restarts bool             // the engine was away when it happened
}

// watch sees the end of the container and keeps its log meanwhile. It is the
// only goroutine of an instance.
func (i *instance) watch(l *listener) {
	defer close(i.watched)
	trouble, missed := false, false
	for {
		if l != nil {
			stop := context.AfterFunc(i.ctx, l.close)
			err := i.copyLog(l)
			stop()
			l.close()
			if i.ctx.Err() != nil {
				return
			}
			if !away(err) && !trouble {
				trouble = true
				i.log.Warn("the log of a server can't be kept", "server", i.h.Server, "error", err)
			}
		}
		how, runs, err := i.await(missed)
		switch {
		case i.ctx.Err() != nil:
			return
		case err == nil && !runs:
			i.end(how)
			return
		}
		// The engine was away and is back, and the container has survived.
		l, missed = i.listenAgain()
	}
}

// listenAgain attaches to the log of a container after the engine was away. It returns
// nothing where the container has ended, or missed where the engine is away once more.
// Podman attaches to no container that is paused: that waits until it is not.
func (i *instance) listenAgain() (l *listener, missed bool) {
	for wait := 100 * time.Millisecond; i.ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		l, err := i.e.listen(i.ctx, i.rec.ref(), i.rec.HTTP)
		if away(err) {
			i.rest(time.Second)
			return nil, true
		}
		how, unknown := i.e.ended(i.ctx, i.rec.ref()) // where Docker attaches all the same
		if err == nil && how == "" && unknown == nil {
			i.log.Info("the container engine answers again", "server", i.h.Server)
			return l, false
		}
		if err == nil {
			l.close()
		}
		if how != "" {
			return nil, false
		}
		i.rest(wait)
	}
	return nil, false
}

// copyLog keeps what a container writes, until it ends.
func (i *instance) copyLog(l *listener) (err error) {
	defer telemetry.Contain(i.log, telemetry.InDriver, i.h.Server, func(e error) { err = e })
	return l.copyTo(i.stderr)
}

// rest waits, as long as the instance is watched.
func (i *instance) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-i.ctx.Done():
	}
}

// await waits until the container does not run. Where the engine goes away, or was
// away just now, it waits until it is back and says what it found then.
func (i *instance) await(missed bool) (how exit, runs bool, err error) {
	how.restarts = missed
	wait := 50 * time.Millisecond
	for {
		if !how.restarts { // else it is asked for its state until it answers
			err := i.e.waitExit(i.ctx, i.rec.ref())
			if i.ctx.Err() != nil {
				return how, false, i.ctx.Err()
			}
			if err != nil && !gone(err) {
				how.restarts = true
				i.log.Warn("the container engine does not answer; waiting until it does", "server", i.h.Server, "host", i.e.host, "error", err)
			}
		}
		res, err := i.e.cli.ContainerInspect(i.ctx, i.rec.ref(), client.ContainerInspectOptions{})
		switch {
		case err == nil && res.Container.State != nil && !alive(res.Container.State):
			how.state = res.Container.State
			return how, false, nil
		case err == nil && how.restarts:
			return how, true, nil
		case gone(err):
			return how, false, nil
		}
		i.rest(wait)
		if i.ctx.Err() != nil {
			return how, false, i.ctx.Err()
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// alive reports whether there are processes in the container.
func alive(s *container.State) bool {
	return s.Running || s.Paused || s.Restarting || s.Status == container.StateRunning || s.Status == container.StatePaused
}

// waitExit waits until the container does not run, or the engine does not answer.
func (e *engine) waitExit(ctx context.Context, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res := e.cli.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-res.Result:
		return nil
	case err := <-res.Error:
		return err
	}
}

// end takes note that the container has ended.
func (i *instance) end(how exit) {
	i.Exit()
	i.mu.Lock()
	conn, web := i.conn, i.web
	i.mu.Unlock()
	if conn != nil {
		conn.End()
	}
	if web != nil {
		web.end()
	}
	i.End(func() error { return i.exitError(how) })
}

// exitError tells how the container ended, with its last words.
func (i *instance) exitError(how exit) error {
	text := "is gone: its container was removed outside of Tine"
	if s := how.state; s != nil {
		text = describe(s)
	}
	if how.restarts {
		text += ", because the container engine was stopped"
	}
	err := i.stderr.Ending(i.log, i.h.Server, text)
	if how.restarts && !i.rec.Keeps {
		err = fmt.Errorf("%w: %w", err, driver.ErrLost)
	}
	return err
}

// describe says how a container ended.
func describe(s *container.State) string {
	var text string
	switch {
	case s.OOMKilled:
		text = "was killed because it used more memory than it may (raise docker.memory)"
	case s.ExitCode > 128 && s.ExitCode < 128+65:
		text = fmt.Sprintf("ended by signal %d (exit status %d)", s.ExitCode-128, s.ExitCode)
	default:
		text = fmt.Sprintf("exited with status %d", s.ExitCode)
	}
	if s.Error != "" {
		text += " (" + s.Error + ")"
	}
	return text
}

// whyClosed says what it means that the connection to the container is over.
func (i *instance) whyClosed() error {
	ctx, cancel := context.WithTimeout(i.ctx, 5*time.Second)
	defer cancel()
	_, err := i.e.cli.ContainerInspect(ctx, i.rec.ref(), client.ContainerInspectOptions{})
	if err == nil || gone(err) || i.ctx.Err() != nil {
		return io.EOF
	}
	return errors.Join(errAway, err)
}

func sizeText(n int64) string { return units.BytesSize(float64(n)) }
