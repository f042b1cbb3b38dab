//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"
)

// What a root shows of the host is live below every folder that it binds. The files
// that it binds one by one are not: the host may replace them, and add others to a
// folder that is shown entry by entry. So the host is looked at whenever a sandbox is
// sent something, and the root is brought up to date for all sandboxes that have it.
//
// The root is planned again for that, by what the sandbox was started with: see
// layout.Wanted.Running. What can't be followed is logged, and the sandbox keeps what it
// has.

// followWait is how long a message to a sandbox waits until its root is up to date.
const followWait = 10 * time.Second

// followTries is how often a plan is begun anew because the host has changed meanwhile.
const followTries = 5

// followMend is what to do about a sandbox that can't follow the host.
const followMend = "undo that, open a new session, or restart the gateway"

// follow brings the root of an instance up to date. A sandbox that an earlier gateway
// made has none that could be: see adoptedRoot.
func (i *instance) follow() {
	if i.root == nil {
		return
	}
	if _, behind := i.root.behind(); behind {
		ctx, cancel := context.WithTimeout(context.Background(), followWait)
		i.catchUp(ctx)
		cancel()
	}
	i.warn(i.trouble())
}

// catchUp brings the root up to date with what the host has now. Of several sandboxes
// with the same root one does it.
func (i *instance) catchUp(ctx context.Context) {
	r := i.root.root
	select {
	case r.following <- struct{}{}:
		defer func() { <-r.following }()
	case <-ctx.Done():
		r.inTrouble(fmt.Errorf("bring its root up to date: %w", ctx.Err()))
		return
	}
	var now looks
	var p *plan
	var err error
	for range followTries {
		at, behind := time.Now(), false
		if now, behind = r.behind(); !behind {
			return
		}
		// What is gone by now was there a moment ago: the host is in the middle of it.
		if p, err = i.replan(ctx, now, at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err == nil {
		err = errors.Join(slices.Concat(p.looks.layout.Refused, []error{i.d.roots.refresh(ctx, r, p)})...)
	} else {
		r.know(now) // it is tried again when the host has changed once more
	}
	r.inTrouble(err)
}

// replan plans the root for what the host has now.
func (i *instance) replan(ctx context.Context, now looks, at time.Time) (*plan, error) {
	if err := i.root.lost(); err != nil {
		return nil, err
	}
	if last := i.root.current(); last != nil && last.looks.alike(now) {
		p := *last
		p.looks, p.at = now, at
		return &p, nil
	}
	return i.d.planFrom(ctx, i.spec, i.plan, now.layout)
}

// trouble says where the sandbox differs from the host; empty for nowhere.
func (i *instance) trouble() string {
	r := i.root.root
	r.mu.Lock()
	shared, now, seen := r.trouble, r.looks, r.seen
	r.mu.Unlock()
	i.followed.Lock()
	defer i.followed.Unlock()
	if i.followed.seen != seen {
		i.followed.seen, i.followed.writes = seen, i.plan.unwritable(now)
	}
	err := errors.Join(shared, i.followed.writes)
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// unwritable names the folders of allow_write that the host has replaced. The sandbox
// keeps those that it started with: they are mounts of its own.
func (p *plan) unwritable(now looks) error {
	var errs []error
	for _, was := range p.looks.others {
		if was.link || !slices.Contains(p.box.AllowWrite, was.source) || slices.Contains(now.others, was) {
			continue
		}
		what := "something else is there by now"
		if was.now().ino == 0 {
			what = "it is gone"
		}
		errs = append(errs, fmt.Errorf("allow_write: %s: %s, and the sandbox writes to what was there when it started", was.source, what))
	}
	return errors.Join(errs...)
}

// warn writes a trouble once into the gateway's log, for each server, and once into the
// server's own log.
func (i *instance) warn(trouble string) {
	i.followed.Lock()
	was := i.followed.logged
	i.followed.logged = trouble
	i.followed.Unlock()
	switch {
	case trouble == was:
	case trouble == "":
		i.d.troubles.CompareAndDelete(i.h.Server, was)
	default:
		if before, _ := i.d.troubles.Swap(i.h.Server, trouble); before != trouble {
			i.log.Warn("a sandbox does not see the host as it is now", "server", i.h.Server, "session", i.h.Session, "because", trouble, "mend", followMend)
		}
		i.note("this sandbox does not see the host as it is now: " + trouble + "; " + followMend)
	}
}

// note adds a line to what the server logs.
func (i *instance) note(line string) { fmt.Fprintf(i.stderr, "tine: %s\n", line) }

// followed is what an instance knows of how it follows the host.
type followed struct {
	sync.Mutex
	seen   uint64 // of the root, when writes was worked out
	writes error  // names the folders of allow_write that the host has replaced
	logged string // the trouble that was logged last
}

// rooted says which root an instance has, so that it can follow the host.
func (i *instance) rooted(m *making) {
	i.root, i.spec, i.plan = m.root, m.spec, m.plan // the root is released when the sandbox has ended
	i.spec.Log, i.spec.OnDamage = nil, nil
}

// maxFollowed bounds how many paths a record names.
const maxFollowed = 8

// followed are some of the paths for which the root has to be brought up to date.
func (p *plan) followed() []string {
	all := p.looks.layout.Listed()
	for _, b := range p.looks.binds {
		if b.watched && !b.entry {
			all = append(all, b.source)
		}
	}
	return all[:min(len(all), maxFollowed)]
}

// adoptedRoot says that a sandbox of an earlier gateway does not follow the host. Its
// root is a mount in the namespace of a helper that has ended, and nothing that is
// mounted elsewhere appears in it.
func (i *instance) adoptedRoot() {
	if len(i.rec.Follows) == 0 {
		return
	}
	const mend = "open a new session, or restart the gateway"
	paths := strings.Join(i.rec.Follows, ", ")
	i.log.Warn("a sandbox that an earlier gateway started keeps files that are shown one by one as they were", "server", i.h.Server, "session", i.h.Session, "such as", paths, "mend", mend)
	i.note("this sandbox was started by an earlier gateway, and keeps files that are shown one by one as they were, such as " + paths + "; " + mend)
}
