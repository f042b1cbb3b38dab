package api

import "time"

// NewLease is the body of POST /v1/leases. Sessions that are opened under a lease, and
// their forks, are closed when it runs out, so that a client that dies leaves none. An
// Idempotency-Key header makes a repeated request give the same lease.
type NewLease struct {
	TTL    string            `json:"ttl,omitempty"` // 5s to 24h; default 60s
	Labels map[string]string `json:"labels,omitempty"`
}

// Lease answers it, and PUT /v1/leases/{id}, which gives the lease its whole ttl again.
// After the gateway was away every lease has its whole ttl.
type Lease struct {
	ID       string            `json:"id"`
	Owner    string            `json:"owner,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	TTL      string            `json:"ttl"`
	Created  time.Time         `json:"created"`
	Expires  time.Time         `json:"expires"`
	Sessions int               `json:"sessions"` // open ones
}

// LeaseList answers GET /v1/leases: the caller's own, or all with the role of a viewer,
// the oldest first.
type LeaseList struct {
	Leases []Lease `json:"leases"`
}
