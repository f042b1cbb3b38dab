package session

import (
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// grant has as many instances ready as are wanted and fit: together they hold at
// most half of the memory that all sessions may use, so that there is room for
// the sessions that are to have them. The caller is a user of it. One that was
// refused is asked for again only where something changed.
func (k *stock) grant(w *warm, changed bool) {
	k.granting.Lock()
	defer k.granting.Unlock()
	k.mu.Lock()
	e, snap, was, gone := w.e, w.snap, w.granted, w.retired || w.refused && !changed
	var others int64
	for _, other := range k.warm {
		if other != w {
			others += other.held
		}
	}
	k.mu.Unlock()
	if snap == nil || gone {
		return
	}
	most, each, n := k.r.Catalog().Config.Sessions.Memory, e.Budget.Memory, e.Warm
	if most > 0 && each > 0 {
		n = int(min(int64(n), max(0, most/2-others)/each))
	}
	k.r.budget.releaseAhead(need{memory: w.held})
	for n > 0 && !k.r.budget.takeAhead(need{memory: each * int64(n)}) {
		n--
	}
	refused := false
	if n != was {
		if refused = !k.haveReady(e, *snap, n); refused {
			k.r.budget.releaseAhead(need{memory: each * int64(n)})
			n = 0
		}
	}
	k.mu.Lock()
	w.granted, w.held, w.refused = n, each*int64(n), refused
	k.mu.Unlock()
}

// haveReady asks for so many instances, and reports whether there can be any.
func (k *stock) haveReady(e *catalog.Entry, snap driver.Snapshot, n int) bool {
	if n < e.Warm {
		k.r.o.Log.Info("fewer instances stand ready than are wanted: sessions.memory has no room for more", "server", e.ID, "ready", n, "wanted", e.Warm)
	}
	if err := k.ready(e, snap, n); err != nil {
		k.r.o.Log.Warn("no instances stand ready; sessions begin with what is warm of the server all the same", "server", e.ID, "err", err)
		return false
	}
	return true
}

// fill gives those more of whom fewer are ready than are wanted, where there
// is room by now.
func (k *stock) fill() {
	var few []*warm
	k.mu.Lock()
	for _, w := range k.warm {
		if w.snap != nil && w.granted < w.e.Warm {
			w.users++
			few = append(few, w)
		}
	}
	k.mu.Unlock()
	for _, w := range few {
		k.grant(w, false)
		k.release(&w.spare)
	}
}

// yield has what stands ready give way to requests that wait, until the registry
// ends.
func (k *stock) yield() {
	for {
		select {
		case n := <-k.r.budget.short:
			if short := k.r.budget.missing(n); short > 0 {
				k.giveWay(short)
			}
		case <-k.r.life.Done():
			return
		}
	}
}

// giveWay gives back so much memory, or all that ready instances hold. The
// reaper has more of them made when no request waits.
func (k *stock) giveWay(short int64) {
	k.granting.Lock()
	defer k.granting.Unlock()
	k.mu.Lock()
	var all []*warm
	for _, w := range k.warm {
		if w.held > 0 {
			w.users++
			all = append(all, w)
		}
	}
	k.mu.Unlock()
	for _, w := range all {
		if short > 0 {
			short -= k.shrink(w, short)
		}
		k.release(&w.spare)
	}
}

// shrink lets go of as many ready instances of a server as hold so much memory,
// and returns how much they held. k.granting is held, and the caller is a user.
func (k *stock) shrink(w *warm, short int64) int64 {
	k.mu.Lock()
	e, snap, granted, held := w.e, w.snap, w.granted, w.held
	k.mu.Unlock()
	each := held / int64(granted)
	n := int(min(int64(granted), (short+each-1)/each))
	refused := !k.haveReady(e, *snap, granted-n)
	if refused {
		n = granted
	}
	freed := each * int64(n)
	k.mu.Lock()
	w.granted, w.held, w.refused = granted-n, held-freed, refused
	k.mu.Unlock()
	k.r.budget.releaseAhead(need{memory: freed})
	return freed
}
