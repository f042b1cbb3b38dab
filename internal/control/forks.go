package control

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
)

// Fork forks a session: sessions of their own that begin with its state, all or none.
func (c *Sessions) Fork(ctx context.Context, r Request, id string, in api.ForkRequest) (api.Forks, error) {
	create, err := c.forking(r.Who, id, in)
	if err != nil {
		return api.Forks{}, err
	}
	return once(ctx, c.core, r, in, create)
}

// forking checks a request to fork a session, and returns what does it.
func (c *Sessions) forking(who identity.Principal, id string, in api.ForkRequest) (creation[api.Forks], error) {
	var spans spanReader
	o := session.ForkOptions{
		Count: in.Count, Labels: in.Labels,
		TTL: spans.read("ttl", in.TTL), Idle: spans.read("idle", in.Idle), Wait: spans.read("wait", in.Wait),
	}
	if spans.err != nil {
		return nil, spans.err
	}
	if o.Count == 0 {
		o.Count = 1
	}
	if o.Count < 1 || o.Count > maxForks {
		return nil, Invalid("count must be a number from 1 to %d", maxForks)
	}
	if err := api.ValidLabels(in.Labels); err != nil {
		return nil, err
	}
	return func(ctx context.Context, mark string) (api.Forks, func(context.Context), error) {
		o := o
		o.Creation = mark
		parent, err := c.Usable(ctx, who, id)
		if err != nil {
			return api.Forks{}, nil, err
		}
		was := c.reg.Describe(parent, false)
		if err := checkForkLabels(was.Labels, in.Labels); err != nil {
			return api.Forks{}, nil, err
		}
		var latest time.Time // zero for no bound
		if who.Session != "" {
			if l := who.Limit(); l != nil && !l.Expires.IsZero() && (was.Expires.IsZero() || l.Expires.Before(was.Expires)) {
				was.Expires = l.Expires
			}
			latest = was.Expires
			endWithin(was, c.reg.Catalog().Config.Sessions.TTL, &o)
		}
		owner := who
		if owner.Name != parent.Owner { // an operator's forks are no operator's
			owner = identity.Principal{Name: parent.Owner}
		}
		o.Pinned = identity.Pin(owner)
		made, err := c.reg.Fork(ctx, parent, o)
		if err != nil {
			return api.Forks{}, nil, access.Unnamed(who, err)
		}
		undo := func(ctx context.Context) {
			for _, child := range made.Children {
				c.reg.CloseSession(ctx, child)
			}
		}
		if err := c.EndBy(ctx, latest, made.Children); err != nil {
			undo(context.WithoutCancel(ctx))
			return api.Forks{}, nil, fmt.Errorf("the fork was taken back: %w", err)
		}
		out := api.Forks{
			Parent: parent.ID, Sessions: make([]api.OpenedSession, 0, len(made.Children)),
			Paused: float64(made.Paused.Microseconds()) / 1000,
		}
		if made.Call > 0 {
			out.Call = store.CallID(made.Call)
		}
		for i, child := range made.Children {
			out.Sessions = append(out.Sessions, api.OpenedSession{Session: c.shown(who, c.reg.Describe(child, false)), Token: made.Tokens[i]})
		}
		return out, undo, nil
	}, nil
}

// checkForkLabels refuses labels that are too many together with the parent's.
func checkForkLabels(parent, more map[string]string) error {
	n := len(parent)
	for k := range more {
		if _, same := parent[k]; !same {
			n++
		}
	}
	if n > api.MaxLabels {
		return Invalid("labels: with the %d of the parent there would be %d, and may be %d", len(parent), n, api.MaxLabels)
	}
	return nil
}

// beforeParent is how much earlier than their parent children end: their time is
// counted from when they are made, a little after it was asked for.
const beforeParent = time.Second

// endWithin keeps children from outlasting their parent. A caller that has no more than
// a session's token would else make, out of what is lent for an hour, something
// that stays. usual is how long sessions last unless a request says otherwise.
func endWithin(parent api.Session, usual time.Duration, o *session.ForkOptions) {
	if idle, err := time.ParseDuration(parent.Idle); err == nil && idle > 0 && (o.Idle < 0 || o.Idle > idle) {
		o.Idle = idle
	}
	if parent.Expires.IsZero() {
		return
	}
	left := max(time.Until(parent.Expires), 1)
	left -= min(left/2, beforeParent)
	if asked := cmp.Or(o.TTL, usual); asked <= 0 || asked > left {
		o.TTL = left
	}
}

// EndBy sees to it that children which took their time to be made end by a
// moment all the same; zero is none.
func (c *Sessions) EndBy(ctx context.Context, latest time.Time, children []*session.Session) error {
	if latest.IsZero() {
		return nil
	}
	for _, child := range children {
		if !c.reg.Describe(child, false).Expires.After(latest) {
			continue
		}
		left := max(time.Until(latest)-beforeParent, 1)
		if err := c.reg.Amend(ctx, child, nil, &left, nil); err != nil {
			return err
		}
	}
	return nil
}

// Rewind brings a session back to a snapshot.
func (c *Sessions) Rewind(ctx context.Context, r Request, id string, in api.RewindRequest) (api.Session, error) {
	who := r.Who
	wait, err := duration("wait", in.Wait)
	if err != nil {
		return api.Session{}, err
	}
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return api.Session{}, err
	}
	if err := c.host.Alone(s, r.Conn, "rewound"); err != nil {
		return api.Session{}, err
	}
	snap, err := c.rewindTo(who, s, in.Snapshot)
	if err != nil {
		return api.Session{}, err
	}
	leave, err := c.host.Enter(who)
	if err != nil {
		return api.Session{}, err
	}
	defer leave()
	if err := c.reg.Rewind(ctx, s, snap.ID, wait); err != nil {
		return api.Session{}, access.Unnamed(who, err)
	}
	return c.shown(who, c.reg.Describe(s, true)), nil
}

// rewindTo finds the snapshot to rewind a session to: the one that was asked
// for, or the newest of the session.
func (c *Sessions) rewindTo(who identity.Principal, s *session.Session, asked string) (api.Snapshot, error) {
	if asked != "" {
		return c.snapshots.Usable(who, asked)
	}
	for _, snap := range c.reg.Snapshots() {
		if snap.Session == s.ID {
			return snap, nil
		}
	}
	return api.Snapshot{}, Invalid("session %s has no snapshot to rewind to; make one with `tine session snapshot %s`, or let sessions.autosnapshot make them", s.ID, s.ID)
}
