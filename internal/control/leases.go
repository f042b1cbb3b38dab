package control

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
)

// Leases is what can be done to leases.
type Leases struct{ *core }

const (
	minLease     = 5 * time.Second
	maxLease     = 24 * time.Hour
	defaultLease = time.Minute
)

// New makes a lease.
func (c *Leases) New(ctx context.Context, r Request, in api.NewLease) (api.Lease, error) {
	ttl := defaultLease
	if in.TTL != "" {
		var err error
		if ttl, err = time.ParseDuration(in.TTL); err != nil || ttl < minLease || ttl > maxLease {
			return api.Lease{}, Invalid("ttl must be a duration from %s to %s, such as 60s; %q is none", minLease, maxLease, Clip(in.TTL))
		}
	}
	if err := api.ValidLabels(in.Labels); err != nil {
		return api.Lease{}, err
	}
	return once(ctx, c.core, r, in, func(ctx context.Context, _ string) (api.Lease, func(context.Context), error) {
		l, err := c.reg.NewLease(ctx, r.Who.Name, ttl, in.Labels)
		undo := func(ctx context.Context) { _ = c.end(ctx, l.ID) }
		return l, undo, err
	})
}

// List lists leases, the oldest first: the principal's own, or all with the role of a
// viewer.
func (c *Leases) List(who identity.Principal) api.LeaseList {
	all := slices.DeleteFunc(c.reg.Leases(), func(l api.Lease) bool { return !access.Sees(who, access.Thing{Owner: l.Owner}) })
	return api.LeaseList{Leases: all}
}

// Renew gives a lease its whole time again.
func (c *Leases) Renew(who identity.Principal, id string) (api.Lease, error) {
	if err := c.usable(who, id); err != nil {
		return api.Lease{}, err
	}
	l, ok := c.reg.RenewLease(id)
	if !ok {
		return l, noLease(id)
	}
	return l, nil
}

// End ends a lease and closes its sessions. The caller may hang up meanwhile.
func (c *Leases) End(ctx context.Context, who identity.Principal, id string) error {
	if err := c.usable(who, id); err != nil {
		return err
	}
	if err := c.end(context.WithoutCancel(ctx), id); err != nil {
		return err
	}
	c.log.Info("lease ended", "lease", id, "by", who.Name)
	return nil
}

func (c *Leases) end(ctx context.Context, id string) error {
	return c.reg.EndLease(ctx, id, func(s *session.Session) error { return c.host.EndSession(ctx, s) })
}

// usable refuses a lease that is not there for a principal to use.
func (c *Leases) usable(who identity.Principal, id string) error {
	owner, ok := c.reg.LeaseOwner(id)
	switch {
	case !ok || !access.Sees(who, access.Thing{Owner: owner}):
		return noLease(id)
	case !access.Uses(who, access.Thing{Owner: owner}):
		return access.Need(who, api.RoleOperator)
	}
	return nil
}

func noLease(id string) error {
	return &api.Error{
		Kind: api.KindInvalid, Status: http.StatusNotFound,
		Message: "there is no lease " + Clip(id) + " of yours; it may have run out, and its sessions are closed then",
	}
}
