//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
	"github.com/tine-mcp/tine/internal/driver/stdio"
)

var _ driver.Execer = (*instance)(nil)

const (
	// commandsName is a file in the instance's folder that is there while commands run:
	// the gateway after one that was killed knows by it that there may be some left.
	commandsName = "commands"
	// maxExec is how large a command may be with its environment, as JSON.
	maxExec = 100 << 10
	// endCommandWait is how long a command that was killed may take to be gone.
	endCommandWait = 20 * time.Second
)

// Exec implements [driver.Execer]. The command is a process in the sandbox, with the
// rights of its program.
func (i *instance) Exec(ctx context.Context, spec driver.Spec, c driver.Command) (driver.Exit, error) {
	exit, err := i.exec(ctx, spec, c)
	if err != nil && ctx.Err() != nil {
		return driver.Exit{}, ctx.Err()
	}
	if err != nil {
		return driver.Exit{}, fmt.Errorf("server %q: %w", i.h.Server, err)
	}
	return exit, nil
}

func (i *instance) exec(ctx context.Context, spec driver.Spec, c driver.Command) (driver.Exit, error) {
	if err := i.MayDial(ctx); err != nil {
		return driver.Exit{}, err
	}
	i.follow()
	i.park.add(1)
	defer i.park.add(-1)
	req := i.request(control.OpExec)
	var err error
	if req.Exec, err = i.command(ctx, spec, c); err != nil {
		return driver.Exit{}, err
	}
	pipes, err := stdio.New(c)
	if err != nil {
		return driver.Exit{}, err
	}
	defer pipes.Close()
	done, err := i.noteCommand()
	if err != nil {
		return driver.Exit{}, err
	}
	defer done()

	alive, cancel := i.alive()
	defer cancel()
	running, stop := context.WithCancel(ctx)
	defer stop()
	pipes.Begin(stop)
	answered := make(chan struct{})
	var rep control.Reply
	go func() {
		defer close(answered)
		rep, _, err = i.order(alive, req, pipes.Files()...)
		pipes.Handed()
	}()
	select {
	case <-answered:
	case <-running.Done():
		i.endCommand(req.Exec.ID)
		<-answered
	}
	if errors.Is(err, errHelper) {
		i.endCommand("") // it runs on without the helper that started it
	}
	// Its process may still be there, and answers no more.
	ending := err != nil && (strings.Contains(err.Error(), "control server") || strings.HasSuffix(err.Error(), "has stopped"))
	if err != nil && !i.rec.ID.Lives() || ending { // the watch may not know yet
		select {
		case <-i.Exited():
		case <-time.After(endingWait):
		}
	}
	switch {
	case i.Over():
		return driver.Exit{}, i.CutOff(endingWait)
	case ctx.Err() != nil:
		return driver.Exit{}, ctx.Err()
	case pipes.Failed() != nil:
		return driver.Exit{}, fmt.Errorf("hand over the command's output: %w", pipes.Failed())
	case ending:
		return driver.Exit{}, fmt.Errorf("its sandbox has ended: %w", driver.ErrGone)
	case err != nil:
		return driver.Exit{}, i.explainExec(rep, c, err)
	}
	select {
	case <-pipes.Copied():
	case <-running.Done():
		return driver.Exit{}, errors.Join(ctx.Err(), pipes.Failed())
	}
	if err := pipes.Failed(); err != nil {
		return driver.Exit{}, fmt.Errorf("hand over the command's output: %w", err)
	}
	if rep.Signaled != 0 {
		return driver.Exit{Signal: signalName(rep.Signaled)}, nil
	}
	return driver.Exit{Code: rep.Code}, nil
}

// explainExec says why a command did not run.
func (i *instance) explainExec(rep control.Reply, c driver.Command, err error) error {
	switch {
	case rep.NotDir:
		return fmt.Errorf("%w: the folder %q is not there", driver.ErrCommand, c.Cwd)
	case rep.NotFound:
		return fmt.Errorf("%w: the sandbox has no %q", driver.ErrNotFound, c.Argv[0])
	case unloadable(err.Error()) != "":
		return fmt.Errorf("%w: %q can't be run: %s", driver.ErrCommand, c.Argv[0], unloadable(err.Error()))
	case strings.Contains(err.Error(), "is nothing that this helper does"):
		return driver.Final(errors.New("its sandbox is of an earlier version of Tine, which runs no commands; open the session anew"))
	}
	return err
}

// unloadable is why a file is no program, by the words of gVisor for what its caller can
// mend: a script without its first line, a file without the right to be run.
func unloadable(text string) string {
	if !strings.Contains(text, "failed to load ") {
		return ""
	}
	for _, why := range []string{"permission denied", "exec format error", "too many symbolic links encountered", "not a directory", "is a directory"} {
		if strings.HasSuffix(text, ": "+why) {
			return why
		}
	}
	return ""
}

// command works out how a command is run.
func (i *instance) command(ctx context.Context, spec driver.Spec, c driver.Command) (*control.Exec, error) {
	p := i.plan
	if p == nil { // it was adopted
		var err error
		if p, err = i.d.plan(ctx, spec); err != nil {
			return nil, err
		}
	}
	e := &control.Exec{ID: rand.Text(), Argv: c.Argv, Cwd: p.cwd, UID: p.uid, GID: p.gid}
	if c.Cwd != "" {
		if e.Cwd = c.Cwd; !path.IsAbs(c.Cwd) {
			e.Cwd = path.Join(p.cwd, c.Cwd)
		}
	}
	for _, kv := range p.env {
		name, _, _ := strings.Cut(kv, "=")
		if _, given := c.Env[name]; !given {
			e.Env = append(e.Env, kv)
		}
	}
	for name, value := range c.Env {
		e.Env = append(e.Env, name+"="+value)
	}
	if c.User != "" {
		var err error
		if !i.d.rootful {
			return nil, fmt.Errorf("%w: the gateway does not run as root, so that its sandboxes have one user; leave user out", driver.ErrCommand)
		}
		if e.UID, e.GID, err = i.d.user(c.User); err != nil {
			return nil, fmt.Errorf("%w: user %q is not the UID:GID of a user other than root", driver.ErrCommand, c.User)
		}
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if len(b) > maxExec {
		return nil, fmt.Errorf("%w: its arguments and environment have %d bytes, and %d is the most; use its input", driver.ErrCommand, len(b), maxExec)
	}
	return e, nil
}

// endCommand kills a command, or with no name those that have no caller. It does not
// matter that the caller has left.
func (i *instance) endCommand(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), endCommandWait)
	defer cancel()
	req := i.request(control.OpEnd)
	req.Exec = &control.Exec{ID: id}
	if _, _, err := i.order(ctx, req); err != nil && !i.Over() {
		i.log.Warn("a command is not ended", "server", i.h.Server, "error", err)
	}
}

// noteCommand notes in the instance's folder that a command runs, until done is called.
func (i *instance) noteCommand() (done func(), err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	name := filepath.Join(i.h.Dir, commandsName)
	if i.commands == 0 {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			return nil, fmt.Errorf("note that a command runs: %w", err)
		}
	}
	i.commands++
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.commands--; i.commands == 0 && !i.Over() {
			_ = os.Remove(name)
		}
	}, nil
}

// endLeftCommands kills the commands that a gateway before us left.
func (i *instance) endLeftCommands() {
	name := filepath.Join(i.h.Dir, commandsName)
	if _, err := os.Lstat(name); err != nil {
		return
	}
	i.park.add(1)
	defer i.park.add(-1)
	i.endCommand("")
	_ = os.Remove(name)
}

// signalName is what a signal is called, without SIG.
func signalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); len(name) > 3 {
		return name[3:]
	}
	return strconv.Itoa(n)
}
