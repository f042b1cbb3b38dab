package storetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testLeases(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	if all := got(s.Leases(ctx)); len(all) != 0 {
		t.Fatalf("a new store has leases: %+v", all)
	}
	a := store.Lease{ID: "lse_a", Owner: "ann", TTL: 90 * time.Second, Created: day, Data: json.RawMessage(`{"labels":{"a":"b"}}`)}
	b := store.Lease{ID: "lse_b", TTL: 5 * time.Second, Created: day.Add(time.Hour)}
	must(t, s.PutLease(ctx, b))
	must(t, s.PutLease(ctx, store.Lease{ID: "lse_a", Owner: "other"}))
	must(t, s.PutLease(ctx, a))
	s = reopen()
	same(t, got(s.Leases(ctx)), []store.Lease{a, b})
	must(t, s.DeleteLease(ctx, "lse_a"))
	must(t, s.DeleteLease(ctx, "lse_a"))
	s = reopen()
	same(t, got(s.Leases(ctx)), []store.Lease{b})
}
