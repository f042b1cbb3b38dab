package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// instancesAtOnce is how many instances of one request are made at once.
const instancesAtOnce = 16

// An order is what was asked for, checked as far as it can be without looking
// at what there is.
type order struct {
	server   string
	count    int
	labels   map[string]string
	template string // a snapshot or a path; empty for none
	frozen   bool   // only a snapshot will do
}

// Create makes instances of a server, all or none.
func (c *Instances) Create(ctx context.Context, r Request, in api.NewInstances) ([]api.Instance, error) {
	o, err := readOrder(in)
	if err != nil {
		return nil, err
	}
	return once(ctx, c.core, r, in, func(ctx context.Context, mark string) ([]api.Instance, func(context.Context), error) {
		if err := c.checkResource(r.Who, o.server); err != nil {
			return nil, nil, err
		}
		open := session.OpenOptions{
			Owner:  session.Owner{Name: r.Who.Name, Pinned: identity.Pin(r.Who)},
			Labels: o.labels, Servers: []string{o.server}, Eager: true, Creation: mark,
		}
		if err := c.beginWith(r.Who, o, &open); err != nil {
			return nil, nil, err
		}
		return c.openInstances(ctx, r, o, open)
	})
}

func readOrder(in api.NewInstances) (o order, err error) {
	if o.server = in.Resource; o.server == "" {
		return o, Invalid("resource_type_identifier must name what to run: the id of a server")
	}
	if o.count, err = howMany("num_instances", in.Count); err != nil {
		return o, err
	}
	switch in.Scoping {
	case "", api.ScopingSession, api.ScopingShared:
	default:
		return o, Invalid("instance_scoping must be %s or %s; %q is neither", api.ScopingSession, api.ScopingShared, Clip(in.Scoping))
	}
	if o.labels, err = instanceLabels(o.server, in.Session); err != nil {
		return o, err
	}
	o.template, o.frozen, err = readTemplate(in.Template)
	return o, err
}

func howMany(field string, asked *int) (int, error) {
	if asked == nil {
		return 1, nil
	}
	if *asked < 1 || *asked > maxForks {
		return 0, Invalid("%s must be a number from 1 to %d", field, maxForks)
	}
	return *asked, nil
}

var errSessionID = Invalid("session_id must be at most 1024 bytes without control characters")

// instanceLabels are those of a session that is an instance.
func instanceLabels(server, session string) (map[string]string, error) {
	labels := map[string]string{labelServer: server, labelSession: session}
	if api.ValidLabels(map[string]string{labelSession: session}) != nil {
		return nil, errSessionID
	}
	return labels, api.ValidLabels(labels)
}

// readTemplate reads template_details.
func readTemplate(raw json.RawMessage) (ref string, frozen bool, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", false, nil
	}
	if json.Unmarshal(raw, &ref) == nil && ref != "" {
		return ref, false, nil
	}
	var object struct {
		Snapshot string `json:"snapshot_id"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if dec.Decode(&object) != nil || object.Snapshot == "" {
		return "", false, Invalid(`template_details must be the name of a snapshot, a path under template_roots, or {"snapshot_id": "..."}`)
	}
	return object.Snapshot, true, nil
}

// checkResource refuses what can't be had as an instance.
func (c *Instances) checkResource(who identity.Principal, id string) error {
	e := c.reg.Catalog().Entry(id)
	if e == nil || !who.MaySee(id) {
		return Invalid("there is no server %q for resource_type_identifier; there is %s", Clip(id), c.resources(who))
	}
	if e.Controls() {
		return Invalid("server %q acts on sessions and can't be an instance; there is %s", id, c.resources(who))
	}
	if on, why := e.On(); !on {
		return &api.Error{Kind: api.KindRefused, Server: id, Message: "server \"" + id + "\" is off: " + why}
	}
	return nil
}

// mostNamed bounds how many servers an error lists.
const mostNamed = 20

// resources lists what a principal may have instances of.
func (c *Instances) resources(who identity.Principal) string {
	var ids []string
	for _, e := range c.reg.Catalog().Entries {
		if on, _ := e.On(); on && who.MaySee(e.ID) && !e.Controls() {
			ids = append(ids, e.ID)
		}
	}
	if len(ids) > mostNamed {
		ids = append(ids[:mostNamed], "more")
	}
	return cmp.Or(strings.Join(ids, ", "), "none")
}

// beginWith says what the instances of an order begin with. A snapshot of the
// server brings the config along that it was made with; one that has no more than
// the workspace is only a template, as a path is.
func (c *Instances) beginWith(who identity.Principal, o order, open *session.OpenOptions) error {
	if o.template == "" {
		return nil
	}
	name, prefixed := strings.CutPrefix(o.template, fromSnapshot)
	snap, err := c.snapshots.Usable(who, name)
	var e *api.Error
	switch {
	case err == nil && slices.ContainsFunc(snap.Servers, func(m api.SnapshotMember) bool { return m.Server == o.server }):
		open.From = snap.ID
		open.Members = map[string]catalog.Member{o.server: {Instances: 1}} // however many it was made of
		return nil
	case err == nil:
	case o.frozen, prefixed, !errors.As(err, &e), e.Status != http.StatusNotFound, c.isSnapshot(name):
		return err
	}
	template, err := json.Marshal(name)
	open.Members = map[string]catalog.Member{o.server: {Template: template, Snapshot: snap.ID}}
	return err
}

// isSnapshot reports whether there is a snapshot with this id, whosever it is.
func (c *Instances) isSnapshot(id string) bool {
	return slices.ContainsFunc(c.reg.Snapshots(), func(s api.Snapshot) bool { return s.ID == id })
}

// openInstances opens the sessions of an order: all of them, or none.
func (c *Instances) openInstances(ctx context.Context, r Request, o order, open session.OpenOptions) ([]api.Instance, func(context.Context), error) {
	opening, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	made := make([]*session.Session, o.count)
	out := make([]api.Instance, o.count)
	undo := func(ctx context.Context) {
		var wg sync.WaitGroup
		for _, s := range made {
			if s != nil {
				wg.Go(func() { c.reg.CloseSession(ctx, s) })
			}
		}
		wg.Wait()
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, instancesAtOnce)
	for i := range o.count {
		places <- struct{}{}
		if opening.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-places }()
			s, token, err := c.reg.OpenSession(opening, open)
			if err != nil {
				cancel(err)
				return
			}
			made[i] = s
			if err := c.answers(opening, s, o.server); err != nil {
				cancel(err)
				return
			}
			out[i] = shownInstance(c.sessions.shown(r.Who, c.reg.Describe(s, true)), token)
		})
	}
	wg.Wait()
	if opening.Err() != nil {
		undo(context.WithoutCancel(ctx))
		return nil, nil, context.Cause(opening)
	}
	return out, undo, nil
}

// answers sees to it that the server of a new instance runs also where it is
// shared with others, which no session starts by itself.
func (c *Instances) answers(ctx context.Context, s *session.Session, server string) error {
	up, e, err := s.Upstream(server)
	if err == nil && e.Scope != config.ScopeSession {
		_, err = up.Conn(ctx)
	}
	return err
}

// Fork makes instances that begin with the state of one, all or none.
func (c *Instances) Fork(ctx context.Context, r Request, id string, in api.ForkInstance) ([]api.Instance, error) {
	count, err := howMany("count", in.Count)
	if err != nil {
		return nil, err
	}
	var labels map[string]string // children have their parent's
	if in.Session != "" {
		labels = map[string]string{labelSession: in.Session}
		if api.ValidLabels(labels) != nil {
			return nil, errSessionID
		}
	}
	forks, err := actOn(ctx, c, r.Who, id, func() (api.Forks, error) {
		return c.sessions.Fork(ctx, r, id, api.ForkRequest{Count: count, Labels: labels})
	})
	if err != nil {
		return nil, err
	}
	out := make([]api.Instance, 0, len(forks.Sessions))
	for _, s := range forks.Sessions {
		out = append(out, shownInstance(s.Session, s.Token))
	}
	return out, nil
}

// Snapshot freezes the state of an instance.
func (c *Instances) Snapshot(ctx context.Context, r Request, id string, in api.SnapshotInstance) (api.InstanceSnapshot, error) {
	s, err := actOn(ctx, c, r.Who, id, func() (api.Snapshot, error) {
		return c.snapshots.Make(ctx, r, id, api.SnapshotRequest{Name: in.Name})
	})
	if err != nil {
		return api.InstanceSnapshot{}, err
	}
	return api.InstanceSnapshot{ID: s.ID, Name: s.Name, From: s.Session, Created: s.Created, Size: s.Size}, nil
}

// actOn does something to the session that an instance is. One that is gone is not
// refused before: what came of an earlier request with the same key is answered all the
// same.
func actOn[A any](ctx context.Context, c *Instances, who identity.Principal, id string, act func() (A, error)) (A, error) {
	_, was, err := c.seen(ctx, who, id)
	if err != nil {
		var nothing A
		return nothing, err
	}
	out, err := act()
	var e *api.Error
	if errors.As(err, &e) && e.Status == http.StatusGone {
		err = wasRemoved(was)
	}
	return out, err
}
