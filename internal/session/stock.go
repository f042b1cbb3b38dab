package session

import (
	"context"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// The stock is what is made before it is asked for:
//
//	key           made from             given to        file
//	warm: N       a server as it starts a new session   warm.go, ready.go
//	fork_ahead:   a member of a session its forks       ahead.go
//	slots: N      nothing               any instance    slots.go, by the driver
//
// Of the first two there is a spare: a snapshot of one server with instances of it
// that stand ready at the driver. A session that begins with a spare uses it until
// then; one that is retired is removed by its last user:
//
//	made --use--> in use --release--> made --retire--> removed
//	                 \--retire--> in use --release--> removed
type stock struct {
	r *Registry

	// mu guards warm and all spares. Nothing else is locked while it is held.
	mu   sync.Mutex
	warm map[string]*warm // by server

	// making is held while a warm is made.
	making chan struct{}
	// granting is held while it is settled how many instances stand ready. mu and
	// the lock of the budget are taken under it.
	granting sync.Mutex
}

func newStock(r *Registry) *stock {
	return &stock{r: r, warm: make(map[string]*warm), making: make(chan struct{}, 1)}
}

// A spare is a snapshot of one server that was made ahead of time.
type spare struct {
	e    *catalog.Entry
	snap *driver.Snapshot // nil until it is made
	dir  string
	held int64 // memory of the budget, by the instances that stand ready

	users   int  // sessions that begin with it, and its maker
	retired bool // no session can take it any more
}

// use keeps a spare from being removed until release.
func (k *stock) use(sp *spare) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sp.users++
}

// release ends a use. The last one of a retired spare removes it.
func (k *stock) release(sp *spare) {
	k.mu.Lock()
	sp.users--
	last := sp.users == 0 && sp.retired
	k.mu.Unlock()
	if last {
		k.remove(sp)
	}
}

// retire removes spares that can't be reached any more, each with its last user. Nil is none.
func (k *stock) retire(all ...*spare) {
	for _, sp := range all {
		if sp == nil {
			continue
		}
		k.mu.Lock()
		now := !sp.retired && sp.users == 0
		sp.retired = true
		k.mu.Unlock()
		if now {
			k.remove(sp)
		}
	}
}

// remove lets go of the instances that stand ready and of the snapshot.
func (k *stock) remove(sp *spare) {
	k.r.budget.releaseAhead(need{memory: sp.held})
	if sp.snap == nil {
		return
	}
	ctx, cancel := afterwards(context.Background())
	defer cancel()
	if err := k.ready(sp.e, *sp.snap, 0); err != nil {
		k.r.o.Log.Warn("instances that were ready are not let go of", "server", sp.e.ID, "err", err)
	}
	k.r.discard(ctx, &frozen{Members: []frozenMember{{Server: sp.e.ID, Snapshot: *sp.snap}}}, sp.dir)
}

// ready has the driver keep so many instances of a snapshot ready.
func (k *stock) ready(e *catalog.Entry, snap driver.Snapshot, n int) error {
	spec := e.Spec()
	spec.Log = k.r.o.Log
	return e.Preparer().Ready(spec, snap, n)
}

// close retires all that is warm: no session is left that could use it.
func (k *stock) close() {
	k.mu.Lock()
	all := k.warm
	k.warm = make(map[string]*warm)
	k.mu.Unlock()
	for _, w := range all {
		k.retireWarm(w)
	}
}
