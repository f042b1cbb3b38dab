package docker

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

// Adopt implements driver.Driver.
func (d *Driver) Adopt(ctx context.Context, h driver.Handle, log *slog.Logger) (driver.Instance, error) {
	inst, err := d.adopt(ctx, h, log)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", h.Server, err)
	}
	return inst, nil
}

func (d *Driver) adopt(ctx context.Context, h driver.Handle, log *slog.Logger) (_ *instance, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rec, err := records.Of(h)
	if err != nil {
		return nil, err
	}
	e, err := d.engine(rec.Host)
	if err != nil {
		return nil, err
	}
	if _, err := e.ready(ctx); err != nil {
		return nil, err
	}
	if why, err := e.ended(ctx, rec.ref()); err != nil {
		return nil, err
	} else if why != "" {
		return nil, d.over(ctx, h.Dir, rec, why)
	}
	// The gateway before us may have died while it held it.
	if err := e.unpause(ctx, rec.ref()); err != nil {
		return nil, e.explain("let the container go on", err)
	}
	if err := folder.Make(h.Dir); err != nil {
		return nil, err
	}
	stderr, err := lines.OpenLog(h.Dir, d.opts.LogLimit)
	if err != nil {
		return nil, err
	}
	i := d.newInstance(e, h, rec, stderr, log)
	d.claim(keyOf(h.Dir))
	defer func() {
		if err != nil {
			i.disconnect()
			stderr.Close()
		}
	}()
	if err := i.endLeftCommands(); err != nil {
		return nil, err
	}
	if err := i.connect(ctx, true); err != nil {
		return nil, err
	}
	// Docker attaches to a container that has ended as well, and never says so.
	if why, err := e.ended(ctx, rec.ref()); err != nil {
		return nil, err
	} else if why != "" {
		return nil, d.over(ctx, h.Dir, rec, why)
	}
	if rec.HTTP {
		if i.web, err = e.reach(ctx, rec); err != nil {
			return nil, err
		}
	} else if !i.conn.Whole() {
		// A line that was half written is ended at once, so that its end is there
		// before the first message, which ends it once more.
		i.pipe.conn.Write([]byte{'\n'})
	}
	if rec.Ours {
		if err := e.enterNetwork(ctx, rec.Network, rec.Reach); err != nil {
			return nil, err
		}
		i.entered = true
	}
	i.begin()
	return i, nil
}

// ended says how a container has ended; empty where it runs.
func (e *engine) ended(ctx context.Context, id string) (string, error) {
	s, err := e.state(ctx, id)
	switch {
	case gone(err):
		return "its container is gone", nil
	case err != nil:
		return "", e.explain("find the container", err)
	case s == nil:
		return "its container has ended", nil
	case !alive(s):
		return "its container " + describe(s), nil
	}
	return "", nil
}

// over removes what is left of an instance that can't be adopted, and returns
// why: as ErrGone, and as ErrLost where the engine was restarted meanwhile and
// nothing else has what it knew.
func (d *Driver) over(ctx context.Context, dir string, rec record, why string) error {
	lost := error(nil)
	if rec.Mortal && !rec.Keeps {
		why += ", for Podman closes the input of a container when the gateway goes"
		lost = driver.ErrLost
	} else if e, err := d.engine(rec.Host); err == nil && !rec.Keeps && rec.Engine != "" && e.run() != "" && e.run() != rec.Engine {
		why += ", because the container engine was restarted"
		lost = driver.ErrLost
	}
	if err := d.endLeftover(ctx, dir, rec); err != nil {
		return fmt.Errorf("%s, and what it left can't be removed: %w", why, err)
	}
	if lost != nil {
		return fmt.Errorf("%s: %w: %w", why, lost, driver.ErrGone)
	}
	return fmt.Errorf("%s: %w", why, driver.ErrGone)
}
