//go:build linux || darwin

package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/stdio"
)

var _ driver.Execer = (*instance)(nil)

// A command is a child of the gateway beside the server. It has the server's token, so
// that it ends with the instance, and one of its own, by which all that it started is
// found; where this program can be started again, that watches over the command and ends
// it with the gateway (supervise_linux.go). A command of a gateway that died is ended by
// the next one, when it adopts the instance.

// execPrefix begins the token of a command.
const execPrefix = "exec-"

// running is a command that was started.
type running interface {
	// wait returns when the command has ended, and what is known to belong to it.
	wait() (driver.Exit, error)
	// end has all of it killed. Twice is fine.
	end()
}

// Exec implements [driver.Execer].
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
	if err := ctx.Err(); err != nil {
		return driver.Exit{}, err
	}
	own := family.Family{Token: execPrefix + rand.Text()}
	launch, err := i.execSpec(spec, c, own.Token)
	if err != nil {
		return driver.Exit{}, err
	}
	pipes, err := stdio.New(c)
	if err != nil {
		return driver.Exit{}, err
	}
	defer pipes.Close()
	if err := i.MayDial(ctx); err != nil { // it has ended, or is being stopped
		return driver.Exit{}, err
	}
	run, err := i.d.startCommand(launch, pipes.Files())
	if err != nil {
		return driver.Exit{}, err
	}
	pipes.Handed()
	pipes.Begin(run.end)
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
		case <-i.Exited():
		case <-i.Parted():
		case <-over:
			return
		}
		run.end()
	}()
	exit, err := run.wait()
	if _, alone := run.(*unwatched); alone || err != nil {
		err = errors.Join(err, i.d.census.End(own))
	}
	close(over)
	<-watched
	if cut := i.CutOff(family.KillWait); cut != nil {
		return driver.Exit{}, cut
	}
	if err != nil || ctx.Err() != nil {
		return driver.Exit{}, errors.Join(ctx.Err(), err)
	}
	select {
	case <-pipes.Copied():
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
	if err := pipes.Failed(); err != nil {
		return driver.Exit{}, fmt.Errorf("hand over the command's output: %w", err)
	}
	return exit, nil
}

// commandSpec is a command with all that it is given.
type commandSpec struct {
	launchSpec
	argv []string
	user *syscall.Credential // nil for the gateway's own
}

// execSpec works out how a command is started.
func (i *instance) execSpec(spec driver.Spec, c driver.Command, token string) (*commandSpec, error) {
	m := i.d.mountOf(spec)
	spec, err := fillIn(spec, m)
	if err != nil {
		return nil, err
	}
	cwd := spec.Cwd
	if c.Cwd != "" {
		if cwd = c.Cwd; !filepath.IsAbs(cwd) {
			cwd = filepath.Join(spec.Cwd, cwd)
		}
		if st, err := os.Stat(m.outside(cwd)); err != nil || !st.IsDir() {
			return nil, fmt.Errorf("%w: the folder %q is not there", driver.ErrCommand, c.Cwd)
		}
	}
	given := maps.Clone(spec.Env)
	if given == nil {
		given = make(map[string]string)
	}
	maps.Copy(given, c.Env)
	env := family.NewEnvironment(i.d.opts.Environ, given, cwd, i.rec.Token+family.Separator+token)
	path, err := findProgram(c.Argv[0], cwd, env, m)
	if err != nil {
		return nil, err
	}
	who, err := credential(c.User)
	if err != nil {
		return nil, err
	}
	return &commandSpec{launchSpec{path: path, env: env, cwd: cwd, mount: m}, c.Argv, who}, nil
}

// findProgram finds the program of a command, as a shell would.
func findProgram(name, cwd string, env *family.Environment, m *mount) (string, error) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(cwd, path)
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		if _, err := runnable(m.outside(path), env); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("%w: %q", driver.ErrNotFound, name)
			}
			return "", fmt.Errorf("%w: %q can't be run: %w", driver.ErrCommand, name, err)
		}
		return path, nil
	}
	for _, dir := range filepath.SplitList(env.Get("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		if _, err := runnable(m.outside(path), env); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: %q is not on PATH", driver.ErrNotFound, name)
}

// credential reads the user of a command. Only root may be another.
func credential(text string) (*syscall.Credential, error) {
	if text == "" {
		return nil, nil
	}
	name, group, both := strings.Cut(text, ":")
	c := &syscall.Credential{}
	if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
		c.Uid, c.Gid = uint32(uid), uint32(uid)
	} else {
		u, err := user.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("%w: there is no user %q on this machine", driver.ErrCommand, name)
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, err
		}
		c.Uid, c.Gid = uint32(uid), uint32(gid)
	}
	if both {
		gid, err := strconv.ParseUint(group, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: the group %q is not a number", driver.ErrCommand, group)
		}
		c.Gid = uint32(gid)
	}
	if os.Geteuid() == int(c.Uid) && os.Getegid() == int(c.Gid) {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: the gateway does not run as root, so that a command can't be another user's; leave user out", driver.ErrCommand)
	}
	return c, nil
}

// startCommand starts a command on files, watched over where that is possible.
func (d *Driver) startCommand(c *commandSpec, files []*os.File) (running, error) {
	if supervises && d.opts.Self != "" {
		return d.startWatched(c, files)
	}
	attr := &os.ProcAttr{Dir: c.cwd, Env: c.env.List(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Credential: c.user}}
	p, err := os.StartProcess(c.path, c.argv, attr)
	if err != nil {
		return nil, startFailure(c.argv[0], err)
	}
	return &unwatched{p: p}, nil
}

// startFailure explains a program that is there and does not start.
func startFailure(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %q, or the interpreter that its first line names", driver.ErrNotFound, name)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: %q is not a program for this machine; a script must begin with a line such as #!/bin/sh", driver.ErrCommand, name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %q may not be run: %w", driver.ErrCommand, name, err)
	}
	return fmt.Errorf("start %q: %w", name, err)
}

// unwatched is a command that is our own child.
type unwatched struct{ p *os.Process }

func (u *unwatched) wait() (driver.Exit, error) {
	state, err := u.p.Wait()
	// Its number is not another's: the group may live on without its leader.
	syscall.Kill(-u.p.Pid, syscall.SIGKILL)
	if err != nil {
		return driver.Exit{}, fmt.Errorf("wait for the command: %w", err)
	}
	return exitOf(state.Sys().(syscall.WaitStatus)), nil
}

func (u *unwatched) end() {
	if u.p.Signal(syscall.Signal(0)) == nil {
		syscall.Kill(-u.p.Pid, syscall.SIGKILL)
	}
	_ = u.p.Kill()
}

// exitOf says how a process ended.
func exitOf(ws syscall.WaitStatus) driver.Exit {
	if ws.Signaled() {
		return driver.Exit{Signal: signalName(ws.Signal())}
	}
	return driver.Exit{Code: ws.ExitStatus()}
}

// endCommands kills what an earlier gateway left of the commands beside an instance.
func (d *Driver) endCommands(rec record) error {
	left := func() []family.Member {
		return slices.DeleteFunc(d.census.Members(family.Family{Token: rec.Token}), func(p family.Member) bool {
			return !slices.Contains(p.Tokens, rec.Token) || !slices.ContainsFunc(p.Tokens, func(t string) bool { return strings.HasPrefix(t, execPrefix) })
		})
	}
	giveUp := time.Now().Add(family.KillWait)
	for {
		all := left()
		if len(all) == 0 {
			return nil
		}
		if time.Now().After(giveUp) {
			return fmt.Errorf("process %d of a command was killed and does not end", all[0].PID)
		}
		for _, p := range all {
			p.Signal(syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}
