//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	for tries := 1; ; tries++ {
		inst, err := d.start(ctx, spec)
		switch {
		case err == nil:
			return inst, nil
		case errors.Is(err, errHelper) && tries < maxTries && ctx.Err() == nil:
			// The server has got no message yet, so that it may be started again.
		default:
			return nil, fmt.Errorf("server %q: %w", spec.Server, err)
		}
	}
}

func (d *Driver) start(ctx context.Context, spec driver.Spec) (_ *instance, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if spec.Dir == "" {
		return nil, errors.New("no folder for the instance is given")
	}
	dir, err := filepath.Abs(spec.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the instance's folder: %w", err)
	}
	if rec, ok := d.unended.Load(dir); ok {
		if err := d.clear(ctx, dir, rec.(record)); err != nil {
			return nil, fmt.Errorf("end the instance before it: %w", err)
		}
		d.unended.Delete(dir)
	}
	if _, err := os.Lstat(filepath.Join(dir, recordName)); err == nil {
		return nil, fmt.Errorf("folder %s belongs to another instance", dir)
	}
	p, err := d.plan(ctx, spec)
	if err != nil {
		return nil, err
	}
	st, err := d.stateOf(spec)
	if err != nil {
		return nil, d.damaged(spec, err)
	}
	runsc, err := d.helpers.ours()
	if err != nil {
		return nil, err
	}
	anew := false
	if st.Image != nil {
		err := d.verify(spec, st.Image)
		if errors.As(err, new(*clone.Damage)) && spec.Front != "" {
			err = unfit{err} // a front goes on from the files, and says what is gone
		} else if err != nil {
			return nil, d.damaged(spec, err)
		} else {
			err = d.continues(spec.Server, *st.Image, p)
		}
		if errors.As(err, new(unfit)) && !errors.As(err, new(*clone.Damage)) { // what it does not fit may be mended since it was looked at
			d.sights.forget()
			if p, err = d.plan(ctx, spec); err == nil {
				err = d.continues(spec.Server, *st.Image, p)
			}
		}
		switch {
		case errors.As(err, new(unfit)) && spec.Anew:
			d.opts.Log.Warn("a server begins anew without the memory in its state", "server", spec.Server, "session", spec.Session, "because", err)
			st, anew = stateRecord{}, true
		case err != nil:
			return nil, err
		default:
			if runsc, err = d.helpers.reads(st.Image.Runsc, st.Image.GVisor); err != nil {
				return nil, fmt.Errorf("its memory can't be read: %w", err)
			}
		}
	}
	rec := record{
		Sandbox: newName(), Runsc: runsc, Flags: p.flags(d), GraceMS: d.grace(spec).Milliseconds(),
		Domains: p.box.Domains, Ordinal: spec.Ordinal, Follows: p.followed(),
		State: spec.State, Base: p.base, Needs: p.needs, Program: p.program(), Memory: len(spec.Dirs) == 0 && d.copies(spec),
	}
	if p.box.Transport == config.ContainerHTTP {
		rec.Port, rec.Path = p.box.Port, p.box.Path
	}
	if !p.cgroup {
		rec.Limit = p.box.Memory
		d.watch.uncounted(d, spec, p.box.CPUs)
	}
	defer d.pool.starting()()
	m, err := d.hand(ctx, p, spec, runsc, st)
	if err != nil {
		return nil, err
	}
	taken := m != nil
	if !taken {
		m = &making{d: d, spec: spec, plan: p, dir: dir, rec: rec}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.undo(ctx))
		}
	}()
	if taken {
		err = m.rehome(spec, dir, rec)
	} else {
		err = m.create(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := m.run(ctx, st); err != nil {
		return nil, err
	}
	i, err := m.finish(ctx, st)
	if err == nil && anew {
		i.fresh = true // not dialled yet: the memory in its state goes when it is
	}
	return i, err
}

func (d *Driver) grace(spec driver.Spec) time.Duration {
	if spec.StopGrace > 0 {
		return spec.StopGrace
	}
	return d.opts.StopGrace
}

// making is a sandbox on its way to be an instance.
type making struct {
	d    *Driver
	spec driver.Spec
	plan *plan
	dir  string
	rec  record

	help     *helper
	root     *rootRef
	stderr   *lines.Log
	pipe     *fifo.Pipe
	listener net.Listener // of the proxy, where it has one
	restored bool         // from the memory that it is wanted with; it is parked
	open     bool         // its directories are shown to it later
}

// create makes the folder, and a sandbox in which nothing runs yet.
func (m *making) create(ctx context.Context) (err error) {
	if m.help, err = m.d.helpers.get(m.rec.Runsc); err != nil {
		return err
	}
	if m.root, err = m.d.roots.make(ctx, m.help, m.plan); err != nil {
		return err
	}
	if err := folder.Make(m.dir); err != nil {
		return err
	}
	// Before the sandbox exists, so that a gateway killed right after finds it.
	if err := m.rec.write(m.dir); err != nil {
		return err
	}
	if m.stderr, err = lines.OpenLog(m.dir, m.d.opts.LogLimit); err != nil {
		return err
	}
	if err := fifo.Make(m.dir); err != nil {
		return err
	}
	in, out, err := fifo.Program(m.dir)
	if err != nil {
		return err
	}
	defer in.Close()
	defer out.Close()
	if m.pipe, err = fifo.Open(m.dir); err != nil {
		return err
	}
	netns, drop, err := m.network(ctx)
	if err != nil {
		return err
	}
	defer drop()
	if err := m.plan.bundle(m.d, m.dir, m.rec.Sandbox, netns); err != nil {
		return err
	}
	// A caller that leaves meanwhile waits: what is being made can't be ended.
	made, cancel := afterwards(ctx)
	defer cancel()
	if !m.plan.bare() {
		root := m.plan.mountRoot(m.d, m.rec.Sandbox)
		if m.open {
			root = m.plan.openRoot(m.d, m.rec.Sandbox)
		}
		if err := m.d.roots.send(made, m.help, control.OpRoot, root); err != nil {
			return fmt.Errorf("show it its directories: %w", err)
		}
		if !m.open {
			// What is mounted for the sandbox is its own by then.
			defer func() { err = errors.Join(err, m.dropMounts(ctx)) }()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	rep, _, err := m.help.call(made, m.request(control.OpCreate), in, out, m.stderr.File())
	if err != nil {
		return err
	}
	return errors.Join(m.note(rep), ctx.Err())
}

func (m *making) request(op string) control.Request {
	return control.Request{Op: op, Sandbox: m.rec.Sandbox, Flags: m.rec.Flags, Bundle: m.dir}
}

// note writes down which processes the sandbox is.
func (m *making) note(rep control.Reply) error {
	for _, p := range []struct {
		pid int
		to  *procid.ID
	}{{rep.PID, &m.rec.ID}, {rep.Gofer, &m.rec.Gofer}} {
		s, err := procid.Look(p.pid)
		if err != nil {
			return m.stderr.Told(m.d.opts.Log, fmt.Errorf("did not start: its sandbox ended at once: %w", err))
		}
		*p.to = s.ID
	}
	return m.rec.write(m.dir)
}

// dropMounts takes away what a sandbox was shown its directories at.
func (m *making) dropMounts(ctx context.Context) error {
	after, cancel := afterwards(ctx)
	defer cancel()
	m.open = false
	root := control.Root{Dir: filepath.Join(m.d.mountsDir(), m.rec.Sandbox)}
	_, _, err := m.help.call(after, control.Request{Op: control.OpDrop, Root: &root})
	return err
}

// run lets the program begin, or go on from the memory in its state.
func (m *making) run(ctx context.Context, st stateRecord) error {
	switch {
	case m.restored:
		return nil
	case st.Image != nil:
		return m.restore(ctx, imageOf(m.spec.State))
	}
	if _, _, err := m.d.helpers.call(ctx, m.rec.Runsc, m.request(control.OpStart)); err != nil {
		return fmt.Errorf("start its program: %w", err)
	}
	return nil
}

// restore lets the program go on from a memory.
func (m *making) restore(ctx context.Context, image string) error {
	req := m.request(control.OpRestore)
	req.Image = image
	if _, _, err := m.d.helpers.call(ctx, m.rec.Runsc, req); err != nil {
		if found := missingFile.FindStringSubmatch(err.Error()); found != nil {
			return fmt.Errorf("go on from its memory: %s, which it had open, is not there any more; put it back: %w", "/"+found[1], err)
		}
		return fmt.Errorf("go on from its memory: %w", err)
	}
	return nil
}

// missingFile is what gVisor says where a file that a program had open is gone.
var missingFile = regexp.MustCompile(`failed to walk "([^"]+)" .*no such file or directory`)

// finish makes the instance.
func (m *making) finish(ctx context.Context, st stateRecord) (*instance, error) {
	h := driver.Handle{Driver: driverName, Server: m.spec.Server, Session: m.spec.Session, Dir: m.dir, Data: m.rec.data()}
	if st.Image != nil && st.Image.Torn {
		if err := os.WriteFile(filepath.Join(h.Dir, lines.MarkName), nil, 0o600); err != nil {
			return nil, fmt.Errorf("server %q: say that its last line has no end: %w", h.Server, err)
		}
	}
	i := m.d.newInstance(h, m.rec, m.help, m.pipe, st.Image != nil, st.Image == nil || !st.Image.Torn, m.stderr, m.spec.Log)
	i.rooted(m)
	i.park.parked.Store(m.restored)
	if st.Image != nil {
		i.hello, i.forked, i.fresh = st.Hello, st.Forked, true
		if len(st.Image.Unread) > 0 {
			if err := i.feed(st.Image.Unread); err != nil {
				return nil, err
			}
		}
	}
	if l := m.listener; l != nil {
		m.listener = nil
		if err := i.open(l); err != nil {
			return nil, err
		}
	}
	if err := i.watchBoth(); err != nil {
		i.shut()
		return nil, err
	}
	if st.Image == nil { // what goes on listens already
		if err := i.listens(ctx); err != nil {
			i.abandon()
			return nil, err
		}
	}
	return i, nil
}

// undo removes what a start that failed has made.
func (m *making) undo(ctx context.Context) error {
	if m.pipe != nil {
		m.pipe.Close()
	}
	if m.stderr != nil {
		m.stderr.Close()
	}
	if m.listener != nil {
		m.listener.Close()
	}
	m.root.release()
	if m.help == nil {
		return nil
	}
	after, cancel := afterwards(ctx)
	defer cancel()
	if m.open {
		_ = m.dropMounts(ctx) // what its helper had goes with that
	}
	if _, err := os.Lstat(filepath.Join(m.dir, recordName)); err != nil {
		return nil
	}
	if err := m.d.destroy(after, m.rec); err != nil {
		m.d.unended.Store(m.dir, m.rec)
		return fmt.Errorf("and what was made of it can't be removed: %w", err)
	}
	return folder.Remove(m.dir, recordName)
}

// afterwards is a context for what must be done even if the caller leaves.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}
