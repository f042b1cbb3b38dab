package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
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
		Seq: 3, ID: store.CallID(3), At: day, Principal: "ann", Session: "ses_1", Run: "run_1", Server: "fs", Method: "tools/call", Name: "read",
		Duration: 1500 * time.Microsecond, Outcome: "timeout", Segment: 7, Offset: 1 << 40, Length: 1 << 33,
	}
	b := store.Call{Seq: 1 << 60, ID: store.CallID(1 << 60), Outcome: "ok", Segment: 1 << 40}
	must(t, s.PutCalls(ctx, []store.Call{a}))
	changed := a
	changed.Name, changed.ID = "changed", "given" // ids are not kept
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
			Seq: i + 1, ID: store.CallID(i + 1), At: day.Add(time.Duration(i) * time.Second),
			Principal: []string{"", "ann", "bob"}[i%3], Session: []string{"", "ses_1"}[i%2],
			Server: []string{"a", "b", "c", "d'"}[i/2%4], Outcome: "ok", Segment: i / 100,
		}
		if i%7 == 0 {
			c.Outcome = "tool"
		}
		if i%5 == 0 && i < 550 {
			c.Run = []string{"run_1", "run_2"}[i/5%2]
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
		{ID: store.CallID(77)},
		{ID: store.CallID(77), Server: "c"},
		{ID: store.CallID(77), Server: "a"},
		{ID: store.CallID(77), Before: 77},
		{ID: store.CallID(77), Before: 78},
		{ID: store.CallID(78), Failed: true, Session: "ses_1"},
		{ID: store.CallID(601)},
		{ID: store.CallID(1 << 62)},
		{ID: "call_none"},
		{ID: "call_77"},
		{ID: "call_00000000004D"},
		{Principal: &nobody},
		{Principal: &ann, Limit: 10000},
		{Principal: &none},
		{Session: "ses_1", Limit: 10000},
		{Session: "ses_1", Failed: true, Principal: &ann, Server: "b", Before: 500},
		{Run: "run_1", Limit: 10000},
		{Run: "run_2", Session: "ses_1", Failed: true},
		{Run: "run_2", Before: 100, Limit: 3},
		{Run: "none"},
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
		{Since: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)},
		{Since: time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)},
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

// chosen is a plain implementation of a filter.
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
			f.Run != "" && c.Run != f.Run,
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
	const many = 10000 // more than fits into one step of an implementation
	var all []store.Call
	for i := range int64(many) {
		all = append(all, store.Call{Seq: i + 1, ID: store.CallID(i + 1), Server: "s", Outcome: "ok", Segment: i / 1000})
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

	// Forgotten calls may come again.
	must(t, s.DropCalls(ctx, 1<<62))
	if _, ok, err := s.LastCall(ctx); ok || err != nil {
		t.Errorf("calls were left: %v, %v", ok, err)
	}
	must(t, s.PutCalls(ctx, all[:1]))
	same(t, got(s.Calls(ctx, everything)), all[:1])
}

// testCallsInPieces puts the same calls in other ways: one by one, again, in no
// order, and into gaps. The result is always the same.
func testCallsInPieces(t *testing.T, s store.Calls, reopen func() store.Calls) {
	ctx := context.Background()
	const many = 1500
	var all []store.Call
	for i := range int64(many) {
		all = append(all, store.Call{
			Seq: 10 * (i + 1), ID: store.CallID(10 * (i + 1)), At: day.Add(time.Duration(i%9) * -time.Hour), Server: "s", Principal: []string{"ann", "bob"}[i/750], Outcome: "ok",
			Segment: i / 400, Offset: 500 * (i % 400), Length: 500,
		})
	}
	everything := store.CallFilter{Limit: 2 * many}
	for _, c := range all[:300] {
		must(t, s.PutCalls(ctx, []store.Call{c}))
	}
	same(t, got(s.Calls(ctx, everything)), chosen(all[:300], everything))
	must(t, s.PutCalls(ctx, all[200:500])) // the first of them are there
	s = reopen()
	must(t, s.PutCalls(ctx, all[200:500]))
	must(t, s.PutCalls(ctx, all[900:]))
	have := append(all[:500:500], all[900:]...)
	same(t, got(s.Calls(ctx, everything)), chosen(have, everything))
	rng := rand.New(rand.NewPCG(1, 2))
	shuffled := append(all[450:950:950], all[:50]...)
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for part := range slices.Chunk(shuffled, 37) {
		again := slices.Clone(part)
		for i := range again {
			again[i].Name = "the second of two"
		}
		must(t, s.PutCalls(ctx, append(part[:len(part):len(part)], again...)))
	}
	same(t, got(s.Calls(ctx, everything)), chosen(all, everything))
	for _, f := range []store.CallFilter{
		{Principal: &all[0].Principal, Limit: many}, {Since: day, Limit: many}, {Before: 7777}, {ID: store.CallID(4570)}, {ID: store.CallID(4571)},
	} {
		same(t, got(s.Calls(ctx, f)), chosen(all, f))
	}
	must(t, s.DropCalls(ctx, 2))
	same(t, got(s.Calls(ctx, everything)), chosen(all[800:], everything))
	must(t, s.PutCalls(ctx, all[:10])) // before all others
	s = reopen()
	same(t, got(s.Calls(ctx, everything)), chosen(append(all[:10:10], all[800:]...), everything))
	last, _, err := s.LastCall(ctx)
	must(t, err)
	same(t, []store.Call{last}, all[many-1:])
}

// testOddCalls has texts that are hard to tell from others.
func testOddCalls(t *testing.T, s store.Calls, reopen func() store.Calls) {
	ctx := context.Background()
	texts := []string{"", "a", "b", "a\nb", "\n", "\na\n", "ab", "A", "%", "_", "'", "\x00", "a\x00b", "日本", "\U0001F600", `"`, `\n`, "\u2028", strings.Repeat("x", 4096), strings.Repeat("x", 4097)}
	var all []store.Call
	for i := range int64(len(texts)) {
		odd := func(k int64) string { return texts[(i+k)%int64(len(texts))] }
		all = append(all, store.Call{
			Seq: i + 1, ID: store.CallID(i + 1), At: time.Unix(0, i), Principal: odd(0), Session: odd(1), Server: odd(2), Method: odd(3), Name: odd(4), Outcome: odd(5),
			Duration: time.Duration(-i), Segment: i / 7, Offset: -i, Length: 1 << 62,
		})
	}
	all[3].At = time.Time{}
	for _, c := range all {
		must(t, s.PutCalls(ctx, []store.Call{c}))
	}
	s = reopen()
	same(t, got(s.Calls(ctx, store.CallFilter{})), chosen(all, store.CallFilter{}))
	for _, text := range append(texts, "none", "x", "\n\n") {
		for _, f := range []store.CallFilter{{Principal: &text}, {Session: text}, {Server: text}, {Servers: []string{text, "none"}}, {Servers: []string{text}, Principal: &text}} {
			same(t, got(s.Calls(ctx, f)), chosen(all, f))
		}
	}
	// Many different ones.
	var many []store.Call
	for i := range int64(500) {
		long := strings.Repeat("n", int(i))
		many = append(many, store.Call{Seq: 1000 + i, ID: store.CallID(1000 + i), Principal: long, Session: long, Server: long})
	}
	must(t, s.PutCalls(ctx, many))
	long := many[77].Session
	for _, f := range []store.CallFilter{{Session: long}, {Server: long}, {Principal: &long}, {Servers: []string{long}}} {
		same(t, got(s.Calls(ctx, f)), many[77:78])
	}
}
