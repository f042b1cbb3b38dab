package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver/folder"
)

// Stop implements driver.Instance.
func (i *instance) Stop(ctx context.Context) error {
	return i.StopWith(func() error { return i.stop(ctx) })
}

func (i *instance) stop(ctx context.Context) error {
	i.Ask()
	i.part()
	i.hangUp() // unread output would keep the engine from seeing the end

	after, cancel := afterwards(ctx)
	defer cancel()
	i.ask(ctx, after)
	if err := i.insist(after); err != nil {
		err = i.e.explain("end the container", err)
		if away(err) {
			i.d.retry(i.h.Dir, i.rec)
			err = fmt.Errorf("%w; it is tried again until the engine answers", err)
		}
		return fmt.Errorf("server %q: %w", i.h.Server, err)
	}
	i.shut()
	i.d.forget(i.h.Dir)
	i.d.disclaim(keyOf(i.h.Dir))
	if i.entered {
		i.e.leaveNetwork(after, i.rec.Network)
	}
	if err := folder.Remove(i.h.Dir, recordName); err != nil {
		return fmt.Errorf("server %q: remove the instance's folder: %w", i.h.Server, err)
	}
	return nil
}

// ask asks the container to end, until it has, or the grace or ctx is over.
func (i *instance) ask(ctx, after context.Context) {
	select {
	case <-i.Done():
		return
	default:
	}
	if ctx.Err() != nil {
		return
	}
	res, err := i.e.cli.ContainerInspect(after, i.rec.ref(), client.ContainerInspectOptions{})
	if err != nil || res.Container.State == nil || !alive(res.Container.State) {
		return
	}
	signal := "SIGTERM"
	if c := res.Container.Config; c != nil && c.StopSignal != "" {
		signal = c.StopSignal
	} else if i.e.local() && deaf(res.Container.State.Pid) {
		return // asking would only take its time
	}
	if _, err := i.e.cli.ContainerKill(after, i.rec.ref(), client.ContainerKillOptions{Signal: signal}); err != nil {
		return
	}
	grace, look := time.NewTimer(i.rec.grace()), time.NewTicker(lookWait)
	defer grace.Stop()
	defer look.Stop()
	for {
		select {
		case <-look.C:
			// Some tidy up at SIGTERM and leave the rest to the kernel, which does nothing to
			// the first process of a container.
			if !i.e.local() || !deaf(res.Container.State.Pid) {
				continue
			}
		case <-i.Done():
		case <-grace.C:
		case <-ctx.Done():
		}
		return
	}
}

// lookWait is how often it is looked whether a container still means to end.
const lookWait = 100 * time.Millisecond

// insist kills what is left of the container and waits until it is gone.
func (i *instance) insist(ctx context.Context) error {
	if i.rec.Stays {
		if err := i.e.kill(ctx, i.rec.ref()); err != nil {
			return err
		}
	} else if err := i.e.removeContainer(ctx, i.rec.ref()); err != nil {
		return err
	}
	late := time.NewTimer(killWait)
	defer late.Stop()
	select {
	case <-i.Done():
		return nil
	case <-late.C:
		return errors.New("it was killed and does not end")
	}
}

// shut closes all that is ours of an instance. The watch returns.
func (i *instance) shut() {
	i.cancel()
	i.mu.Lock()
	conn, web := i.conn, i.web
	i.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	if web != nil {
		web.end()
	}
	<-i.watched
	i.stderr.Close()
}

// Leave implements driver.Instance.
func (i *instance) Leave() error {
	if i.rec.Mortal {
		return i.Stop(context.Background())
	}
	return i.LeaveWith(func() {
		i.part()
		i.shut()
		i.d.disclaim(keyOf(i.h.Dir))
		if i.entered {
			i.e.letGoOfNetwork(i.rec.Network)
		}
	})
}
