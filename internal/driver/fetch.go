package driver

import (
	"context"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A Fetcher is a driver that has the packages of some programs fetched before they
// start, which may take much longer than a start.
type Fetcher interface {
	// Fetch returns when the packages of a spec's program are on this machine, at once
	// where it needs none. All who want the same wait for one fetch. It goes on when
	// they leave, for as long as most, and ends with the driver.
	Fetch(ctx context.Context, spec Spec, most time.Duration) error
	// Fetching says how far the fetch for a spec is; nil where none is under way.
	Fetching(spec Spec) *api.Fetch
	// Refetch has the packages of a spec looked for again by the next Fetch: a start
	// with them took too long, as one does that fetches by itself.
	Refetch(spec Spec)
}
