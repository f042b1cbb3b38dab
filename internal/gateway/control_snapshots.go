package gateway

import (
	"cmp"
	"context"
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

// whose is what decides who may use a snapshot. A session's token has those of
// that session.
func whose(s api.Snapshot) access.Thing { return access.Thing{Owner: s.Owner, Session: s.Session} }

// snapshot finds one by id or name. Names are unique among those of an owner,
// so that one's own goes before others'.
func (g *Gateway) snapshot(who identity.Principal, ref string) (api.Snapshot, error) {
	var named []api.Snapshot
	for _, s := range g.reg.Snapshots() {
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
			Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no snapshot " + clip(ref) + " of yours",
		}
	case 1:
		return named[0], nil
	}
	return api.Snapshot{}, &api.Error{
		Kind: api.KindInvalid, Status: http.StatusConflict,
		Message: fmt.Sprintf("%d principals have a snapshot %q; name one by its id, such as %s of %s", len(named), ref, named[0].ID, named[0].Owner),
	}
}

// usableSnapshot finds one for somebody who wants to make something of it.
func (g *Gateway) usableSnapshot(who identity.Principal, ref string) (api.Snapshot, error) {
	s, err := g.snapshot(who, ref)
	if err == nil && !access.Uses(who, whose(s)) {
		err = access.Need(who, api.RoleOperator)
	}
	return s, err
}

// shownSnapshot is a snapshot as it is answered: nothing of a server that is hidden
// is in it, its size neither.
func (g *Gateway) shownSnapshot(who identity.Principal, s api.Snapshot) api.Snapshot {
	servers := make([]api.SnapshotMember, 0, len(s.Servers))
	for _, m := range s.Servers {
		if access.Knows(who, access.Base(m.Server)) {
			servers = append(servers, m)
		} else {
			s.Size = max(0, s.Size-m.Size)
		}
	}
	s.Servers = servers
	s.Damaged = g.shownDamage(who, whose(s), s.Damaged)
	return s
}

type snapshotQuery struct {
	Owner string   `query:"owner" doc:"only snapshots of this principal"`
	Label []string `query:"label" doc:"only snapshots with this label, as key=value; all of them when repeated"`
	Auto  bool     `query:"auto" doc:"also those that were made by themselves, to rewind to"`
	Limit int64    `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After string   `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listSnapshots(a *ask, q snapshotQuery) (api.SnapshotList, error) {
	want, err := readLabels(q.Label)
	if err != nil {
		return api.SnapshotList{}, err
	}
	return g.pageOfSnapshots(a, q.After, int(q.Limit), func(s api.Snapshot) bool {
		return (q.Auto || !s.Auto) && (q.Owner == "" || q.Owner == s.Owner) && labelled(s.Labels, want)
	})
}

type sessionSnapshotQuery struct {
	Limit int64  `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After string `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listSessionSnapshots(a *ask, q sessionSnapshotQuery) (api.SnapshotList, error) {
	id := a.args["session"]
	if _, _, err := g.seen(a.ctx(), a.who, id); err != nil {
		return api.SnapshotList{}, err
	}
	return g.pageOfSnapshots(a, q.After, int(q.Limit), func(s api.Snapshot) bool { return s.Session == id })
}

// pageOfSnapshots lists those that are chosen, the newest first. The one that a
// page ended with may be gone by the next, so that after says when it was made
// too.
func (g *Gateway) pageOfSnapshots(a *ask, after string, limit int, choose func(api.Snapshot) bool) (api.SnapshotList, error) {
	out := api.SnapshotList{Snapshots: []api.Snapshot{}}
	var last *api.Snapshot
	if after != "" {
		at, id, _ := strings.Cut(after, ".")
		n, err := strconv.ParseInt(at, 36, 64)
		if err != nil || id == "" {
			return out, invalid("after must be the next of an earlier answer")
		}
		last = &api.Snapshot{ID: id, Created: time.Unix(0, n)}
	}
	all := slices.SortedFunc(slices.Values(g.reg.Snapshots()), newestFirst)
	for _, s := range all {
		if last != nil && newestFirst(s, *last) <= 0 || !access.Sees(a.who, whose(s)) || !choose(s) {
			continue
		}
		if len(out.Snapshots) == limit {
			end := out.Snapshots[limit-1]
			out.Next = strconv.FormatInt(end.Created.UnixNano(), 36) + "." + end.ID
			break
		}
		out.Snapshots = append(out.Snapshots, g.shownSnapshot(a.who, s))
	}
	return out, nil
}

func newestFirst(a, b api.Snapshot) int {
	return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.ID, a.ID))
}

func (g *Gateway) getSnapshot(a *ask, _ none) (api.Snapshot, error) {
	s, err := g.snapshot(a.who, a.args["snapshot"])
	return g.shownSnapshot(a.who, s), err
}

func (g *Gateway) deleteSnapshot(a *ask, _ none) (none, error) {
	s, err := g.usableSnapshot(a.who, a.args["snapshot"])
	if err != nil {
		return none{}, err
	}
	if err := g.reg.DeleteSnapshot(a.ctx(), s.ID); err != nil {
		return none{}, err
	}
	g.log.Info("snapshot deleted", "snapshot", s.ID, "by", a.who.Name)
	return none{}, nil
}

func (g *Gateway) exportSnapshot(a *ask, _ none) (file, error) {
	s, err := g.usableSnapshot(a.who, a.args["snapshot"])
	if err != nil {
		return file{}, err
	}
	name := s.ID
	if s.Name != "" {
		name = s.Name
	}
	return file{name + snapshotSuffix, func(w io.Writer) error { return g.reg.Export(a.ctx(), s.ID, access.Hidden(a.who), w) }}, nil
}

// snapshotSuffix ends the names of exported files.
const snapshotSuffix = ".tine"

type importQuery struct {
	Name string `query:"name" doc:"what the snapshot is called; default the name in the file, where that is free"`
}

// importSnapshot reads a file as it comes. It may be larger than any other
// request: what is left of what the principal's snapshots may have bounds it.
//
// Of two requests with one key only the names are compared. To compare the files
// too, the second would have to be read to its end before anything is answered.
func (g *Gateway) importSnapshot(a *ask, q importQuery) (api.Snapshot, error) {
	if err := api.ValidSnapshotName(q.Name); err != nil {
		return api.Snapshot{}, err
	}
	return once(g, a, q, func(ctx context.Context, _ string) (api.Snapshot, func(context.Context), error) {
		body, tooLarge := a.r.Body, error(nil)
		if left, most := g.snapshotRoom(a.who.Name); most > 0 && left > 0 { // with nothing left, Import says so
			tooLarge = &api.Error{
				Kind: api.KindRefused, Status: http.StatusRequestEntityTooLarge,
				Message: fmt.Sprintf("the file is larger than %d bytes, which is what is left of the %d that your snapshots may have; delete some, or have sessions.snapshots raised", left, most),
			}
			if a.r.ContentLength > left {
				return api.Snapshot{}, nil, tooLarge
			}
			body = http.MaxBytesReader(a.w, body, left)
		}
		in := &upload{r: body, ctl: http.NewResponseController(a.w)}
		s, err := g.reg.Import(ctx, session.ImportOptions{
			Owner: a.who.Name, Name: q.Name, Hidden: access.Brings(a.who), Programs: access.Programs(a.who),
		}, in)
		switch {
		case in.tooLarge:
			return api.Snapshot{}, nil, tooLarge
		case in.stalled:
			return api.Snapshot{}, nil, tooSlow(fmt.Sprintf("nothing of the file arrived for %d seconds, which is how long an upload may pause", int(uploadPause.Seconds())))
		case err != nil:
			return api.Snapshot{}, nil, err
		}
		wasRead(a.w)
		g.log.Info("snapshot imported", "snapshot", s.ID, "name", s.Name, "by", a.who.Name)
		return g.shownSnapshot(a.who, s), g.unmake(s), nil
	})
}

// snapshotRoom is how many bytes are left for the snapshots of a principal, of
// how many; there is no bound where most is zero.
func (g *Gateway) snapshotRoom(owner string) (left, most int64) {
	if most = g.reg.Catalog().Config.Sessions.Snapshots; most <= 0 {
		return 0, 0
	}
	left = most
	for _, s := range g.reg.Snapshots() {
		if s.Owner == owner {
			left -= s.Size
		}
	}
	return left, most
}

// readLabels reads labels of a query.
func readLabels(labels []string) (map[string]string, error) {
	want := make(map[string]string, len(labels))
	for _, l := range labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, invalid("label must be key=value; %q is not", clip(l))
		}
		want[k] = v
	}
	return want, nil
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
