//go:build linux || darwin

package example

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/life"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

const (
	defaultGrace = 5 * time.Second // how long to ask before killing
	logLimit     = 1 << 20         // bytes of standard error that are kept
)

// Driver makes instances. It owns nothing until one starts, so it needs no Close.
type Driver struct {
	maxFrame int
	buffers  *sync.Pool // for all instances together: those that are idle need none
}

// The compiler says what is missing, and a reader sees what the driver can do.
var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Sweeper = (*Driver)(nil)
)

// New returns a driver that takes messages of up to maxFrame bytes from a server.
func New(maxFrame int) *Driver { return &Driver{maxFrame: maxFrame, buffers: lines.NewBuffers()} }

// Info implements driver.Driver. What is neither said here nor by an optional interface
// does not happen: no caller asks for the type of a driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{
		Name: Kind.Name, Scopes: []string{"session", "shared"},
		Transport: func(driver.Spec) string { return "stdio" },
	}
}

// Start implements driver.Driver. It names the server once, for all that fails in start.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	i, err := d.start(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", spec.Server, err)
	}
	return i, nil
}

func (d *Driver) start(ctx context.Context, spec driver.Spec) (_ *instance, err error) {
	// What fails because of the config fails first, while there is nothing to undo.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := exec.LookPath(spec.Command) // process/lookup.go minds a PATH in the server's env, too
	if err == nil && !filepath.IsAbs(path) { // whose meaning would change with the folder that the gateway runs in
		err = errors.New("it is not a whole path")
	}
	if err != nil { // Final: another attempt does not help
		return nil, driver.Final(fmt.Errorf("command %q: %w; install it or set servers.%s.command to its full path", spec.Command, err, spec.Server))
	}
	if _, err := os.Lstat(filepath.Join(spec.Dir, records.File)); err == nil || !filepath.IsAbs(spec.Dir) {
		return nil, fmt.Errorf("the folder %q is another instance's, or no whole path", spec.Dir)
	}

	// The folder says whose it is before there is a process: what a gateway that is
	// killed from here on leaves is known to Sweep.
	defer func() {
		if err != nil {
			folder.Remove(spec.Dir, records.File)
		}
	}()
	rec := record{Server: spec.Server}
	if err := folder.Make(spec.Dir); err != nil {
		return nil, err
	}
	if err := records.Write(spec.Dir, rec); err != nil {
		return nil, err
	}
	stderr, err := lines.OpenLog(spec.Dir, logLimit)
	if err != nil {
		return nil, err
	}
	p, in, out, err := lines.NewFiles()
	if err != nil {
		stderr.Close()
		return nil, err
	}
	// The program has its own copies. With ours open, its output would never end.
	defer in.Close()
	defer out.Close()
	id, exit, err := procid.Start(path, append([]string{path}, spec.Args...), &syscall.ProcAttr{
		Dir: spec.Cwd, Env: environment(spec),
		// It writes to the log itself, so that it never waits for us.
		Files: []uintptr{in.Fd(), out.Fd(), stderr.File().Fd()},
		// A session of its own is a process group of its own, which is signalled as a
		// whole, and has no terminal from which a Ctrl-C would reach it.
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		p.Close()
		stderr.Close()
		return nil, fmt.Errorf("start %q in folder %q: %w", path, spec.Cwd, err)
	}

	// From here on there is a process, and what undoes a failure is Stop.
	rec.ID = id
	i := &instance{
		Life: life.New(spec.Server), id: id, exit: exit, pipe: p, stderr: stderr, grace: spec.StopGrace, log: spec.Log,
		handle: driver.Handle{Driver: Kind.Name, Server: spec.Server, Session: spec.Session, Dir: spec.Dir, Data: records.Data(rec)},
	}
	if i.grace <= 0 {
		i.grace = defaultGrace
	}
	if i.log == nil {
		i.log = slog.New(slog.DiscardHandler)
	}
	i.conn = lines.NewConn(p, lines.Options{Server: spec.Server, Limit: d.maxFrame, Buffers: d.buffers, Log: i.log})
	err = errors.Join(ctx.Err(), records.Write(spec.Dir, rec)) // the caller may have left meanwhile
	// Options are what Kind has read; nil where a spec was made without a config.
	if o := driver.Options[Config](spec); err == nil && o != nil && o.Priority > 0 {
		if err = unix.Setpriority(unix.PRIO_PGRP, id.PID, o.Priority); err != nil {
			err = fmt.Errorf("set its priority: %w; change servers.%s.example.priority", err, spec.Server)
		}
	}
	go i.watch() // not before: until watch has reaped the program, no other process gets its number
	if err != nil {
		atOnce, cancel := context.WithCancel(ctx)
		cancel()
		return nil, errors.Join(err, i.Stop(atOnce))
	}
	return i, nil
}

// environment is the environment of the program. Of the gateway's variables the program
// gets only those that programs need to run: the rest may hold secrets of the gateway and of other servers.
func environment(spec driver.Spec) (env []string) {
	for name, value := range spec.Env {
		env = append(env, name+"="+value)
	}
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TMPDIR"} {
		_, own := spec.Env[name]
		if value, ok := os.LookupEnv(name); ok && !own {
			env = append(env, name+"="+value)
		}
	}
	return env
}
