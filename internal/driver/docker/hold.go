package docker

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// Hold implements driver.Instance. No message enters, and the container is
// paused: what it keeps does not change.
func (i *instance) Hold(ctx context.Context) (release func(), err error) {
	return i.HoldWith(ctx, func() (func(), error) {
		i.mu.Lock()
		switch {
		case i.conn != nil:
			i.enter = i.conn.Hold()
		case i.web != nil:
			i.enter = i.web.hold()
		}
		i.mu.Unlock()
		goOn := func() {
			i.thaw()
			i.mu.Lock()
			enter := i.enter
			i.enter = nil
			i.mu.Unlock()
			if enter != nil {
				enter()
			}
		}
		return goOn, i.freeze(ctx)
	})
}

// freeze pauses the container.
func (i *instance) freeze(ctx context.Context) error {
	i.pausing.Lock()
	defer i.pausing.Unlock()
	if err := i.MayHold(); err != nil {
		return err
	}
	select {
	case <-i.Done():
		return nil
	default:
	}
	i.paused = true // also where it fails: how far it came is unknown
	for try := 1; ; try++ {
		_, err := i.e.cli.ContainerPause(ctx, i.rec.ref(), client.ContainerPauseOptions{})
		if err == nil {
			i.pausedAt = time.Now()
			return nil
		}
		// One that is ending can't be paused, and one that has ended need not.
		select {
		case <-i.Done():
			return nil
		default:
		}
		s, stateErr := i.e.state(ctx, i.rec.ref())
		if stateErr == nil && s != nil && !alive(s) || gone(stateErr) {
			return nil
		}
		if !errdefs.IsInternal(err) || try == pauseTries {
			return i.e.explain("pause the container", err)
		}
		select { // the kernel may just have been busy with one of its processes
		case <-i.Done():
			return nil
		case <-ctx.Done():
			return i.e.explain("pause the container", err)
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		}
	}
}

// pauseTries is how often an engine that fails to pause a container is asked again.
const pauseTries = 4

// settle is how long a container stays paused at least. The engine learns of the
// pause a second time, a moment after it answered, and a container that goes on before
// that counts as paused from there on.
const settle = 50 * time.Millisecond

// thaw lets the container go on, where we paused it, however long that takes: nothing
// else would.
func (i *instance) thaw() {
	for logged, wait := false, 50*time.Millisecond; ; logged, wait = true, min(2*wait, time.Second) {
		err := i.tryThaw()
		if err == nil {
			return
		}
		if !logged {
			i.stuck(err)
		}
		select {
		case <-i.Done():
			return
		case <-i.Parted():
			return
		case <-time.After(wait):
		}
	}
}

func (i *instance) tryThaw() error {
	i.pausing.Lock()
	defer i.pausing.Unlock()
	if !i.paused {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), apiWait)
	defer cancel()
	time.Sleep(time.Until(i.pausedAt.Add(settle)))
	if err := i.e.unpause(ctx, i.rec.ref()); err != nil {
		return err
	}
	i.paused = false
	return nil
}

// stuck tells that a container which lives does not go on.
func (i *instance) stuck(err error) {
	select {
	case <-i.Done():
	default:
		i.log.Warn("a container that was paused does not go on", "server", i.h.Server, "error", err)
	}
}

// part makes the instance run again where it is held, for a stop or the next
// gateway, and allows no other hold.
func (i *instance) part() {
	i.Part()
	if err := i.tryThaw(); err != nil {
		i.stuck(err)
	}
}

// unpause lets a container go on. One that is not paused does not mind.
func (e *engine) unpause(ctx context.Context, id string) error {
	_, err := e.cli.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	if err == nil || gone(err) || errdefs.IsConflict(err) {
		return nil
	}
	// Engines say in different ways that it is not paused.
	if s, stateErr := e.state(ctx, id); stateErr == nil && s != nil && !s.Paused && s.Status != container.StatePaused {
		return nil
	}
	return err
}

// state is that of a container.
func (e *engine) state(ctx context.Context, id string) (*container.State, error) {
	res, err := e.cli.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	return res.Container.State, nil
}
