package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testCalls(t *testing.T, s store.Calls, reopen func() store.Calls) {
	ctx := context.Background()
	if _, ok, err := s.LastCall(ctx); ok || err != nil {
		t.Fatalf("a new store has a newest call: %v, %v", ok, err)
	}
	must(t, s.PutCalls(ctx, nil))
	a := store.Call{
		Seq: 3, ID: "call_a", At: day, Principal: "ann", Session: "ses_1", Server: "fs", Method: "tools/call", Name: "read",
		Duration: 1500 * time.Microsecond, Outcome: "timeout", Segment: 7, Offset: 1 << 40, Length: 1 << 33,
	}
	b := store.Call{Seq: 1 << 60, ID: "call_b", Outcome: "ok", Segment: 1 << 40}
	must(t, s.PutCalls(ctx, []store.Call{a}))
	changed := a
	changed.Name = "changed"
	must(t, s.PutCalls(ctx, []store.Call{changed, b}))
	s = reopen()
	same(t, got(s.Calls(ctx, store.CallFilter{})), []store.Call{b, a})
	last, ok, err := s.LastCall(ctx)
	must(t, err)
	if !ok {
		t.Error("there is no newest call")
	}
	same(t, []store.Call{last}, []store.Call{b})
}

func testCallFilters(t *testing.T, s store.Calls, _ func() store.Calls) {
	ctx := context.Background()
	var all []store.Call
	for i := range int64(600) {
		c := store.Call{
			Seq: i + 1, ID: fmt.Sprintf("call_%d", i+1), At: day.Add(time.Duration(i) * time.Second),
			Principal: []string{"", "ann", "bob"}[i%3], Session: []string{"", "ses_1"}[i%2],
			Server: []string{"a", "b", "c", "d'"}[i/2%4], Outcome: "ok", Segment: i / 100,
		}
		if i%7 == 0 {
			c.Outcome = "tool"
		}
		all = append(all, c)
	}
	must(t, s.PutCalls(ctx, all))

	nobody, ann, none := "", "ann", "none"
	for _, f := range []store.CallFilter{
		{},
		{Limit: 7},
		{Limit: 10000},
		{Before: 1},
		{Before: 300, Limit: 20},
		{ID: "call_77"},
		{ID: "call_77", Server: "c"},
		{ID: "call_none"},
		{ID: "call_77", Failed: true, Session: "ses_1"},
		{Principal: &nobody},
		{Principal: &ann, Limit: 10000},
		{Principal: &none},
		{Session: "ses_1", Limit: 10000},
		{Session: "ses_1", Failed: true, Principal: &ann, Server: "b", Before: 500},
		{Server: "d'", Limit: 10000},
		{Server: "a", Principal: &ann},
		{Server: "none"},
		{Failed: true, Limit: 10000},
		{Failed: true, Server: "b", Limit: 5},
		{Failed: true, Principal: &ann},
		{Failed: true, Servers: []string{"b", "c"}},
		{Since: day.Add(500 * time.Second), Limit: 10000},
		{Since: day.Add(550 * time.Second), Failed: true, Server: "a"},
		{Since: day.Add(time.Hour)},
		{Servers: []string{}},
		{Servers: []string{"a", "d'", "none", "a"}},
		{Servers: []string{"a", "d'"}, Limit: 3},
		{Servers: []string{"a", "d'"}, Since: day.Add(200 * time.Second), Before: 400, Limit: 10000},
		{Servers: []string{"a", "c"}, Principal: &ann, Limit: 10000},
		{Servers: []string{"a", "c"}, Server: "c", Limit: 10000},
		{Servers: []string{"a"}, Server: "c"},
		{Servers: []string{"a", "b"}, Session: "ses_1", Before: 100},
	} {
		t.Run(show(f), func(t *testing.T) {
			same(t, got(s.Calls(ctx, f)), chosen(all, f))
		})
	}
}

// chosen is what a filter means, said plainly.
func chosen(all []store.Call, f store.CallFilter) []store.Call {
	limit := f.Limit
	if limit == 0 {
		limit = 100
	}
	var out []store.Call
	for _, c := range slices.Backward(all) {
		switch {
		case len(out) == limit,
			f.ID != "" && c.ID != f.ID,
			f.Principal != nil && c.Principal != *f.Principal,
			f.Session != "" && c.Session != f.Session,
			f.Server != "" && c.Server != f.Server,
			f.Servers != nil && !slices.Contains(f.Servers, c.Server),
			f.Failed && c.Outcome == "ok",
			!f.Since.IsZero() && c.At.Before(f.Since),
			f.Before != 0 && c.Seq >= f.Before:
		default:
			out = append(out, c)
		}
	}
	return out
}

func testDropCalls(t *testing.T, s store.Calls, reopen func() store.Calls) {
	ctx := context.Background()
	const many = 10000 // more than fits into one step of whoever works in steps
	var all []store.Call
	for i := range int64(many) {
		all = append(all, store.Call{Seq: i + 1, ID: fmt.Sprint(i), Server: "s", Outcome: "ok", Segment: i / 1000})
	}
	must(t, s.DropCalls(ctx, 5))
	for part := range slices.Chunk(all, 1000) {
		must(t, s.PutCalls(ctx, part))
	}
	must(t, s.DropCalls(ctx, 0))
	everything := store.CallFilter{Limit: 2 * many}
	if n := len(got(s.Calls(ctx, everything))); n != many {
		t.Fatalf("%d calls, want %d", n, many)
	}
	must(t, s.DropCalls(ctx, 9))
	s = reopen()
	same(t, got(s.Calls(ctx, everything)), chosen(all[9000:], everything))
	same(t, got(s.Calls(ctx, store.CallFilter{Server: "s", Limit: 2 * many})), chosen(all[9000:], everything))

	// What was forgotten may come again.
	must(t, s.DropCalls(ctx, 1<<62))
	if _, ok, err := s.LastCall(ctx); ok || err != nil {
		t.Errorf("calls were left: %v, %v", ok, err)
	}
	must(t, s.PutCalls(ctx, all[:1]))
	same(t, got(s.Calls(ctx, everything)), all[:1])
}
