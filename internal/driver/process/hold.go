package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Hold implements driver.Instance. No frame enters, and where the system can stop
// processes those of the instance are: what they keep on disk does not change, so
// that a copy of it is one that a crash at that moment could have left. One that
// is found and does not stop makes it fail.
//
// A process that left the group, cleared its environment and closed the pipes is
// not found, and goes on.
func (i *instance) Hold(ctx context.Context) (release func(), err error) {
	select {
	case i.holding <- struct{}{}:
	case <-i.done:
		return func() {}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("server %q can't be held: another one holds it: %w", i.h.Server, ctx.Err())
	}
	enter := i.conn.Hold()
	release = sync.OnceFunc(func() {
		i.child.thaw()
		enter()
		<-i.holding
	})
	if settles {
		err = i.conn.Settle(ctx)
	}
	if err == nil {
		err = i.child.freeze(func() error { return i.holdOver(ctx) })
	}
	if err != nil {
		release()
		select {
		case <-i.done: // what has ended is still
			return func() {}, nil
		default:
			return nil, fmt.Errorf("server %q can't be held: %w", i.h.Server, err)
		}
	}
	return release, nil
}

var errParting = errors.New("it is being stopped or left")

// holdOver says why a hold that is not there yet is no longer wanted.
func (i *instance) holdOver(ctx context.Context) error {
	select {
	case <-i.leaving:
		return errParting
	default:
		return ctx.Err()
	}
}

// part makes the instance run again where it is held, for a stop or the next
// gateway, and allows no other hold.
func (i *instance) part() {
	i.parting.Do(func() { close(i.leaving) })
	i.child.thaw()
}
