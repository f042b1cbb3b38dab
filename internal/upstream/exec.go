package upstream

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/workspace"
)

// An Exit says how a command ended.
type Exit struct {
	driver.Exit
	TimedOut bool // it was killed because its time was over
}

// Exec runs a command beside the server, which is started for it as for a call. The
// timeout counts from when the server runs. The error is an *api.Error.
func (u *Upstream) Exec(ctx context.Context, req *Request, c driver.Command, timeout time.Duration) (exit Exit, err error) {
	err = u.beside(ctx, req, func(ctx context.Context, inst driver.Instance, spec driver.Spec) error {
		e, ok := inst.(driver.Execer)
		if !ok {
			return failure(api.KindRefused, u.Server(), false, "its driver runs no commands")
		}
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		done, err := e.Exec(limited, spec, c)
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			exit.TimedOut = true
			return nil
		}
		exit.Exit = done
		return err
	})
	return exit, err
}

// beside does something with the running instance, which is started where none runs, and
// kept from being parked meanwhile.
func (u *Upstream) beside(ctx context.Context, req *Request, do func(ctx context.Context, inst driver.Instance, spec driver.Spec) error) (err error) {
	defer telemetry.Contain(u.o.Log, telemetry.InDriver, u.Server(), func(e error) { err = e })
	u.calls.Add(1)
	defer u.calls.Add(-1)
	c, err := u.connFor(ctx, req)
	if err != nil {
		return u.notStarted(req, err)
	}
	if err := u.before(c, req); err != nil {
		return err
	}
	u.mu.Lock()
	inst, spec := u.inst, u.spec
	u.mu.Unlock()
	if inst == nil || inst != c.inst {
		return failure(api.KindInfrastructure, u.Server(), true, "has just ended; try again")
	}
	if p, ok := inst.(driver.Parker); ok {
		p.Acquire()
		defer p.Release()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(u.life, func() { cancel(u.gone()) })()
	c.uses.makes()
	err = do(ctx, inst, spec)
	var ours *api.Error
	switch {
	case err == nil || errors.As(err, &ours):
		return err
	case ctx.Err() != nil:
		if errors.As(context.Cause(ctx), &ours) {
			return ours
		}
		return failure(api.KindRefused, u.Server(), true, "the request was given up: %v", context.Cause(ctx))
	case errors.Is(err, driver.ErrNotFound), errors.Is(err, driver.ErrCommand):
		return failure(api.KindInvalid, u.Server(), false, "%v", err)
	case errors.Is(err, driver.ErrGone) && u.o.Memory.Kept != "" && u.o.Memory.tells():
		return failure(api.KindLost, u.Server(), false, "%v", err)
	case errors.Is(err, driver.ErrFinal):
		return failure(api.KindRefused, u.Server(), false, "%v", err)
	}
	return failure(api.KindInfrastructure, u.Server(), true, "%v", err)
}

// Files does something with the files of the running instance, which is started where none
// runs. An error about a file is as do returned it.
func (u *Upstream) Files(ctx context.Context, req *Request, do func(ctx context.Context, f driver.Filer, spec driver.Spec) error) error {
	var ofFile error
	err := u.beside(ctx, req, func(ctx context.Context, inst driver.Instance, spec driver.Spec) error {
		f, ok := inst.(driver.Filer)
		if !ok {
			return failure(api.KindRefused, u.Server(), false, "its driver copies no files")
		}
		err := do(ctx, f, spec)
		var path *fs.PathError
		if errors.As(err, &path) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, workspace.ErrLimit) || errors.Is(err, workspace.ErrEscape) {
			ofFile, err = err, nil
		}
		return err
	})
	if err == nil {
		err = ofFile
	}
	return err
}
