package upstream

import (
	"context"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// Hold keeps the server quiet until release is called: the running instance is
// held, and none is started. The instance is nil if none runs; its state does not
// change then. Hold waits for a start in progress. release may be called twice.
func (u *Upstream) Hold(ctx context.Context) (inst driver.Instance, release func(), err error) {
	for {
		u.mu.Lock()
		if u.closed {
			u.mu.Unlock()
			return nil, nil, u.gone()
		}
		var busy <-chan struct{}
		switch {
		case u.attempt != nil:
			busy = u.attempt.done
		case u.conn != nil && u.inst == nil:
			busy = u.conn.replaced // it has ended and is being removed
		}
		if busy == nil {
			break
		}
		u.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			doing := "starting or ending"
			if f := u.Fetching(); f != nil {
				doing = f.String()
			}
			return nil, nil, failure(api.KindTimeout, u.Server(), true, "is still %s, so it can't be held", doing)
		}
	}
	if u.held++; u.held == 1 {
		u.unheld = make(chan struct{})
	}
	inst = u.inst
	u.mu.Unlock()
	free := func() {}
	if inst != nil {
		if free, err = inst.Hold(ctx); err != nil {
			u.letGo()
			return nil, nil, failure(api.KindInfrastructure, u.Server(), true, "%v", err) // which says that it can't be held
		}
	}
	var once sync.Once
	return inst, func() {
		once.Do(func() {
			free()
			u.letGo()
		})
	}, nil
}

func (u *Upstream) letGo() {
	u.mu.Lock()
	u.held--
	last := u.held == 0
	if last {
		close(u.unheld)
	}
	wanted := last && (u.o.Eager || len(u.watchers) > 0)
	u.mu.Unlock()
	if wanted {
		u.Kick() // what would have started meanwhile
	}
}

// Save has the running instance write what it remembers into its state, where that does
// not happen by itself.
func (u *Upstream) Save(ctx context.Context) error {
	u.mu.Lock()
	conn := u.conn
	u.mu.Unlock()
	if conn == nil || conn.save == nil {
		return nil
	}
	if err := conn.save(ctx); err != nil {
		return failure(api.KindInfrastructure, u.Server(), true, "could not save what it remembers: %v", err)
	}
	return nil
}
