package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

var _ driver.Execer = (*instance)(nil)

const (
	// commandVar marks the processes of a command. An engine starts commands and can't
	// end them, so they are found and killed on the machine, by this variable.
	commandVar = "TINE_COMMAND"
	// commandsName is a file in the instance's folder that is there while commands run.
	commandsName = "commands"
)

// Exec implements [driver.Execer]. How a command ended is what the engine says: one that
// was ended by a signal has exited with 128 and the number of the signal.
func (i *instance) Exec(ctx context.Context, spec driver.Spec, c driver.Command) (driver.Exit, error) {
	exit, err := i.exec(ctx, c)
	if err != nil && ctx.Err() != nil {
		return driver.Exit{}, ctx.Err()
	}
	if err != nil {
		return driver.Exit{}, fmt.Errorf("server %q: %w", i.h.Server, err)
	}
	return exit, nil
}

func (i *instance) exec(ctx context.Context, c driver.Command) (driver.Exit, error) {
	if err := i.MayDial(ctx); err != nil {
		return driver.Exit{}, err
	}
	if !i.e.local() || !endsCommands() {
		return driver.Exit{}, driver.Final(errors.New("commands are run only in containers of an engine on this machine, by a gateway that is root: an engine can't end a command by itself"))
	}
	mark := commandVar + "=" + i.commandKey() + rand.Text()
	o := client.ExecCreateOptions{
		User: c.User, WorkingDir: c.Cwd, Cmd: c.Argv, Env: []string{mark},
		AttachStdin: c.Stdin != nil, AttachStdout: true, AttachStderr: true,
	}
	if c.Cwd != "" && !path.IsAbs(c.Cwd) {
		return driver.Exit{}, fmt.Errorf("%w: the folder %q is not an absolute path", driver.ErrCommand, c.Cwd)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		o.Env = append(o.Env, name+"="+c.Env[name])
	}
	done, err := i.noteCommand()
	if err != nil {
		return driver.Exit{}, err
	}
	defer done()
	made, err := i.e.cli.ExecCreate(ctx, i.rec.ref(), o)
	if err != nil {
		return driver.Exit{}, i.e.explain("make the command", err)
	}
	r := &running{i: i, id: made.ID, mark: mark, c: c, streamed: make(chan struct{})}
	return r.run(ctx)
}

// running is a command in a container.
type running struct {
	i    *instance
	id   string
	mark string
	c    driver.Command

	streamed chan struct{} // closed when its output is at its end
	failed   error         // by then
}

func (r *running) run(ctx context.Context) (driver.Exit, error) {
	conn, err := r.i.e.cli.ExecAttach(ctx, r.id, client.ExecAttachOptions{})
	if err != nil {
		return driver.Exit{}, r.i.e.explain("start the command", err)
	}
	defer conn.Close()
	hangUp := sync.OnceFunc(conn.Close)
	if r.c.Stdin != nil {
		go func() { // ends with the input, or with the connection
			_, _ = io.Copy(conn.Conn, r.c.Stdin)
			_ = conn.CloseWrite()
		}()
	}
	go func() {
		defer close(r.streamed)
		out, errOut := orDiscard(r.c.Stdout), orDiscard(r.c.Stderr)
		_, r.failed = stdcopy.StdCopy(out, errOut, conn.Reader)
	}()
	defer func() {
		hangUp()
		<-r.streamed
	}()
	exited := make(chan struct{})
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		defer close(exited)
		r.watch(watching)
	}()
	select {
	case <-exited:
	case <-r.streamed:
	case <-ctx.Done():
	case <-r.i.Exited():
	case <-r.i.Parted():
	}
	// What it left running has its output open.
	err = endMarked(r.mark)
	stop()
	<-exited
	switch {
	case r.i.Over():
		return driver.Exit{}, r.i.CutOff(killWait)
	case ctx.Err() != nil:
		return driver.Exit{}, ctx.Err()
	case err != nil:
		return driver.Exit{}, err
	}
	select {
	case <-r.streamed:
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	case <-r.i.Exited():
		return driver.Exit{}, r.i.CutOff(killWait)
	}
	if r.failed != nil {
		return driver.Exit{}, fmt.Errorf("hand over the command's output: %w", r.failed)
	}
	return r.exit(ctx)
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// watch returns when the first process of the command has ended, or ctx has.
func (r *running) watch(ctx context.Context) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		res, err := r.i.e.cli.ExecInspect(ctx, r.id, client.ExecInspectOptions{})
		if err == nil && !res.Running && res.PID != 0 {
			return
		}
		if err == nil && res.PID != 0 && waitFor(ctx, res.PID, r.mark) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-r.streamed:
			return
		case <-time.After(wait):
		}
	}
}

// exit is how the command ended.
func (r *running) exit(ctx context.Context) (driver.Exit, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		res, err := r.i.e.cli.ExecInspect(ctx, r.id, client.ExecInspectOptions{})
		switch {
		case err != nil:
			return driver.Exit{}, r.i.e.explain("ask how the command ended", err)
		case !res.Running && res.PID == 0 && (res.ExitCode == 126 || res.ExitCode == 127):
			return driver.Exit{}, fmt.Errorf("%w: the container can't run %q", driver.ErrNotFound, r.c.Argv[0])
		case !res.Running && res.ExitCode == killedCode && r.i.dying(ctx):
			return driver.Exit{}, r.i.CutOff(killWait)
		case !res.Running:
			return driver.Exit{Code: res.ExitCode}, nil
		}
		select {
		case <-ctx.Done():
			return driver.Exit{}, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// killedCode is what a command that was killed has exited with.
const killedCode = 128 + 9

// dying reports whether the container has ended, where its watch may not know yet, and
// waits until it does.
func (i *instance) dying(ctx context.Context) bool {
	s, err := i.e.state(ctx, i.rec.ref())
	if !gone(err) && (err != nil || s == nil || alive(s) && !exiting(s.Pid)) {
		return false
	}
	select {
	case <-i.Exited():
	case <-time.After(killWait):
	}
	return true
}

// commandKey begins the marks of an instance's commands.
func (i *instance) commandKey() string { return keyOf(i.h.Dir) + "-" }

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
func (i *instance) endLeftCommands() error {
	name := filepath.Join(i.h.Dir, commandsName)
	if _, err := os.Lstat(name); err != nil {
		return nil
	}
	if err := endMarked(commandVar + "=" + i.commandKey()); err != nil {
		return err
	}
	return os.Remove(name)
}
