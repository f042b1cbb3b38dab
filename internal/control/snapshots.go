package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
)

// Snapshots is what can be done to snapshots.
type Snapshots struct {
	*core
	sessions *Sessions
}

// whose is what decides who may use a snapshot. A session's token has those of
// that session.
func whose(s api.Snapshot) access.Thing { return access.Thing{Owner: s.Owner, Session: s.Session} }

// Find finds one by id or name. Names are unique among those of an owner, so
// that the principal's own goes before others'.
func (c *Snapshots) Find(who identity.Principal, ref string) (api.Snapshot, error) {
	var named []api.Snapshot
	for _, s := range c.reg.Snapshots() {
		switch {
		case !access.Sees(who, whose(s)):
		case s.ID == ref, s.Name == ref && ref != "" && s.Owner == who.Name:
			return s, nil
		case s.Name == ref && ref != "":
			named = append(named, s)
		}
	}
	switch len(named) {
	case 0:
		return api.Snapshot{}, &api.Error{
			Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no snapshot " + Clip(ref) + " of yours",
		}
	case 1:
		return named[0], nil
	}
	return api.Snapshot{}, &api.Error{
		Kind: api.KindInvalid, Status: http.StatusConflict,
		Message: fmt.Sprintf("%d principals have a snapshot %q; name one by its id, such as %s of %s", len(named), ref, named[0].ID, named[0].Owner),
	}
}

// Usable finds one for a principal that makes something of it.
func (c *Snapshots) Usable(who identity.Principal, ref string) (api.Snapshot, error) {
	s, err := c.Find(who, ref)
	if err == nil && !access.Uses(who, whose(s)) {
		err = access.Need(who, api.RoleOperator)
	}
	return s, err
}

// shown is a snapshot as it is answered: nothing of a server that is hidden
// is in it, its size neither.
func (c *Snapshots) shown(who identity.Principal, s api.Snapshot) api.Snapshot {
	servers := make([]api.SnapshotMember, 0, len(s.Servers))
	for _, m := range s.Servers {
		if access.Knows(who, access.Base(m.Server)) {
			servers = append(servers, m)
		} else {
			s.Size = max(0, s.Size-m.Size)
		}
	}
	s.Servers = servers
	s.Damaged = c.shownDamage(who, whose(s), s.Damaged)
	return s
}

// A SnapshotFilter chooses snapshots. Zero fields choose all but automatic ones.
type SnapshotFilter struct {
	Owner  string
	Labels map[string]string // all of them
	Auto   bool              // also those that were made to rewind to
	Page
}

// List lists snapshots, the newest first: the principal's own, or all with the role of a
// viewer.
func (c *Snapshots) List(who identity.Principal, f SnapshotFilter) (api.SnapshotList, error) {
	return c.page(who, f.Page, func(s api.Snapshot) bool {
		return (f.Auto || !s.Auto) && (f.Owner == "" || f.Owner == s.Owner) && labelled(s.Labels, f.Labels)
	})
}

// ListOf lists the snapshots of one session, the newest first.
func (c *Snapshots) ListOf(ctx context.Context, who identity.Principal, id string, page Page) (api.SnapshotList, error) {
	if _, _, err := c.sessions.Seen(ctx, who, id); err != nil {
		return api.SnapshotList{}, err
	}
	return c.page(who, page, func(s api.Snapshot) bool { return s.Session == id })
}

// page lists the chosen ones, the newest first. The one that a page ended with
// may be gone by the next, so that after says when it was made too.
func (c *Snapshots) page(who identity.Principal, page Page, choose func(api.Snapshot) bool) (api.SnapshotList, error) {
	out := api.SnapshotList{Snapshots: []api.Snapshot{}}
	var last *api.Snapshot
	if page.After != "" {
		at, id, _ := strings.Cut(page.After, ".")
		n, err := strconv.ParseInt(at, 36, 64)
		if err != nil || id == "" {
			return out, Invalid("after must be the next of an earlier answer")
		}
		last = &api.Snapshot{ID: id, Created: time.Unix(0, n)}
	}
	all := slices.SortedFunc(slices.Values(c.reg.Snapshots()), newestFirst)
	for _, s := range all {
		if last != nil && newestFirst(s, *last) <= 0 || !access.Sees(who, whose(s)) || !choose(s) {
			continue
		}
		if len(out.Snapshots) == page.Limit {
			end := out.Snapshots[page.Limit-1]
			out.Next = strconv.FormatInt(end.Created.UnixNano(), 36) + "." + end.ID
			break
		}
		out.Snapshots = append(out.Snapshots, c.shown(who, s))
	}
	return out, nil
}

func newestFirst(a, b api.Snapshot) int {
	return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.ID, a.ID))
}

// Get is one snapshot, by id or name.
func (c *Snapshots) Get(who identity.Principal, ref string) (api.Snapshot, error) {
	s, err := c.Find(who, ref)
	return c.shown(who, s), err
}

// Make freezes a session.
func (c *Snapshots) Make(ctx context.Context, r Request, id string, in api.SnapshotRequest) (api.Snapshot, error) {
	wait, err := duration("wait", in.Wait)
	if err != nil {
		return api.Snapshot{}, err
	}
	if err := errors.Join(api.ValidSnapshotName(in.Name), api.ValidLabels(in.Labels)); err != nil {
		return api.Snapshot{}, err
	}
	return once(ctx, c.core, r, in, func(ctx context.Context, mark string) (api.Snapshot, func(context.Context), error) {
		s, err := c.sessions.Usable(ctx, r.Who, id)
		if err != nil {
			return api.Snapshot{}, nil, err
		}
		snap, err := c.reg.Freeze(ctx, s, session.SnapshotOptions{Name: in.Name, Labels: in.Labels, Wait: wait, Creation: mark})
		if err != nil {
			return api.Snapshot{}, nil, access.Unnamed(r.Who, err)
		}
		return c.shown(r.Who, snap), c.unmake(snap), nil
	})
}

// unmake returns how to take a snapshot back.
func (c *Snapshots) unmake(snap api.Snapshot) func(context.Context) {
	return func(ctx context.Context) {
		if err := c.reg.DeleteSnapshot(ctx, snap.ID); err != nil {
			c.log.Warn("snapshot not taken back", "snapshot", snap.ID, "err", err)
		}
	}
}

// Delete deletes a snapshot, by id or name.
func (c *Snapshots) Delete(ctx context.Context, who identity.Principal, ref string) error {
	s, err := c.Usable(who, ref)
	if err != nil {
		return err
	}
	if err := c.reg.DeleteSnapshot(ctx, s.ID); err != nil {
		return err
	}
	c.log.Info("snapshot deleted", "snapshot", s.ID, "by", who.Name)
	return nil
}

// Export returns a snapshot and what writes it as one file, without what the principal must
// not learn of.
func (c *Snapshots) Export(ctx context.Context, who identity.Principal, ref string) (api.Snapshot, func(io.Writer) error, error) {
	s, err := c.Usable(who, ref)
	if err != nil {
		return s, nil, err
	}
	return s, func(w io.Writer) error { return c.reg.Export(ctx, s.ID, access.Hidden(who), w) }, nil
}

// Import makes a snapshot of an exported file, which is read as it comes. Body gives the
// file when its turn has come, of which most bytes may be read; zero for any number.
//
// Of two requests with one key only the names are compared. To compare the files
// too, the second would have to be read to its end before anything is answered.
func (c *Snapshots) Import(ctx context.Context, r Request, name string, body func(left, most int64) (io.Reader, error)) (api.Snapshot, error) {
	if err := api.ValidSnapshotName(name); err != nil {
		return api.Snapshot{}, err
	}
	return once(ctx, c.core, r, struct{ Name string }{name}, func(ctx context.Context, _ string) (api.Snapshot, func(context.Context), error) {
		file, err := body(c.room(r.Who.Name))
		if err != nil {
			return api.Snapshot{}, nil, err
		}
		s, err := c.reg.Import(ctx, session.ImportOptions{
			Owner: r.Who.Name, Name: name, Hidden: access.Brings(r.Who), Programs: access.Programs(r.Who),
		}, file)
		if err != nil {
			return api.Snapshot{}, nil, err
		}
		c.log.Info("snapshot imported", "snapshot", s.ID, "name", s.Name, "by", r.Who.Name)
		return c.shown(r.Who, s), c.unmake(s), nil
	})
}

// room is how many bytes are left for the snapshots of a principal, of
// how many; there is no bound where most is zero.
func (c *Snapshots) room(owner string) (left, most int64) {
	if most = c.reg.Catalog().Config.Sessions.Snapshots; most <= 0 {
		return 0, 0
	}
	left = most
	for _, s := range c.reg.Snapshots() {
		if s.Owner == owner {
			left -= s.Size
		}
	}
	return left, most
}

// labelled reports whether all of the wanted are among some labels.
func labelled(labels, want map[string]string) bool {
	for k, v := range want {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
