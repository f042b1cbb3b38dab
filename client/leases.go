package client

import (
	"context"
	"net/http"

	"github.com/tine-mcp/tine/api"
)

// NewLease makes a lease. Sessions that are opened under it, and their forks, are closed
// when it runs out; renew it about three times in its ttl.
func (c *Client) NewLease(ctx context.Context, in api.NewLease, options ...CreateOption) (*api.Lease, error) {
	return create[api.Lease](ctx, c, in, options, "v1", "leases")
}

// RenewLease gives a lease its whole ttl again.
func (c *Client) RenewLease(ctx context.Context, id string) (*api.Lease, error) {
	var out api.Lease
	if err := c.do(ctx, http.MethodPut, nil, nil, &out, "v1", "leases", id); err != nil {
		return nil, err
	}
	return &out, nil
}

// EndLease ends a lease and closes its sessions.
func (c *Client) EndLease(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, nil, "v1", "leases", id)
}

// Leases lists leases, the oldest first.
func (c *Client) Leases(ctx context.Context) (*api.LeaseList, error) {
	return get[api.LeaseList](ctx, c, nil, "v1", "leases")
}
