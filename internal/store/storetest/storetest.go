// Package storetest has the suites that implementations of store.Local and
// store.Shared pass.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// RunLocal tests the stores that open makes. Opening the same place again, after
// Close, must find what was there. The suite closes what it opens.
func RunLocal(t *testing.T, open func(t testing.TB, place string) store.Local) {
	run(t, open, map[string]func(*testing.T, store.Local, func() store.Local){
		"gateway id":    testGatewayID,
		"handles":       testHandles,
		"clients":       testClients,
		"shared states": testSharedStates,
		"server lists":  testServerLists,
		"odd values":    testOddValues,
		"many at once":  testManyHandles,
		"cancelled":     testCancelledLocal,
		"after closing": testLocalAfterClosing,
	})
	t.Run("calls", func(t *testing.T) {
		RunCalls(t, func(t testing.TB, place string) (store.Calls, func()) {
			s := open(t, place)
			return s, func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	})
}

// RunShared is to store.Shared what RunLocal is to store.Local.
func RunShared(t *testing.T, open func(t testing.TB, place string) store.Shared) {
	run(t, open, map[string]func(*testing.T, store.Shared, func() store.Shared){
		"overrides":        testOverrides,
		"sessions":         testSessions,
		"all or none":      testAllOrNone,
		"found":            testFindSessions,
		"closed":           testClosedSessions,
		"dropped":          testDropSessions,
		"10000":            testManySessions,
		"events":           testEvents,
		"feed":             testFeed,
		"feed dropped":     testFeedDropped,
		"snapshots":        testSnapshots,
		"catalogs":         testCatalogs,
		"catalogs at once": testCatalogsAtOnce,
		"creations":        testCreations,
		"leases":           testLeases,
		"tool lists":       testToolLists,
		"one creates":      testOneCreates,
		"tokens":           testTokens,
		"session tokens":   testSessionTokens,
		"credentials":      testCredentials,
		"agents":           testAgentRows,
		"agents, all":      testAgentsAllOrNone,
		"agents listed":    testAgentLists,
		"callbacks":        testCallbacks,
		"agents dropped":   testDropAgents,
		"agents at once":   testAgentsAtOnce,
		"blueprints":       testBlueprints,
		"many at once":     testSessionsAtOnce,
		"cancelled":        testCancelledShared,
		"after closing":    testSharedAfterClosing,
	})
}

func run[S store.Closer](t *testing.T, open func(t testing.TB, place string) S, tests map[string]func(*testing.T, S, func() S)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			place := t.TempDir()
			s := open(t, place)
			defer func() { s.Close() }()
			test(t, s, func() S {
				if err := s.Close(); err != nil {
					t.Fatalf("close: %v", err)
				}
				s = open(t, place)
				return s
			})
		})
	}
}

// RunCalls tests an implementation of only the index of the journal, in the same
// way. The suite closes what it opens.
func RunCalls(t *testing.T, open func(t testing.TB, place string) (s store.Calls, closeIt func())) {
	for name, test := range map[string]func(*testing.T, store.Calls, func() store.Calls){
		"all":     testCalls,
		"chosen":  testCallFilters,
		"dropped": testDropCalls,
		"pieces":  testCallsInPieces,
		"odd":     testOddCalls,
	} {
		t.Run(name, func(t *testing.T) {
			place := t.TempDir()
			s, closeIt := open(t, place)
			defer func() { closeIt() }()
			test(t, s, func() store.Calls {
				closeIt()
				s, closeIt = open(t, place)
				return s
			})
		})
	}
}

// day is a time with a fraction and a zone, which must come back as the same
// instant.
var day = time.Date(2026, 11, 3, 4, 5, 6, 789012345, time.FixedZone("somewhere", 5400))

func testOverrides(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	on, off := true, false
	must(t, PutOverride(ctx, s, "a", store.Override{Enabled: &on}))
	must(t, PutOverride(ctx, s, "a", store.Override{Enabled: &off}))
	must(t, PutOverride(ctx, s, "b", store.Override{Enabled: &on}))
	must(t, PutOverride(ctx, s, "c", store.Override{Set: json.RawMessage(`{}`)}))
	must(t, PutOverride(ctx, s, "c", store.Override{Set: json.RawMessage{}}))
	set := json.RawMessage(`{"timeout":"5s","n":12345678901234567890,  "headers":{"X":"'"}}`)
	must(t, PutOverride(ctx, s, "e", store.Override{Set: json.RawMessage(`1`)}))
	must(t, PutOverride(ctx, s, "e", store.Override{Enabled: &off, Set: set}))
	must(t, PutOverride(ctx, s, "f", store.Override{Set: set}))
	must(t, PutOverride(ctx, s, "d", store.Override{Enabled: &on}))
	must(t, PutOverride(ctx, s, "d", store.Override{}))
	must(t, PutOverride(ctx, s, "never there", store.Override{}))
	refused := errors.New("no")
	err := s.ChangeOverride(ctx, "e", func(o store.Override) (store.Override, error) {
		same(t, o, store.Override{Enabled: &off, Set: set})
		return store.Override{}, refused
	})
	if err != refused {
		t.Errorf("a change that is refused: %v", err)
	}
	s = reopen()
	same(t, got(s.Overrides(ctx)), map[string]store.Override{"a": {Enabled: &off}, "b": {Enabled: &on}, "e": {Enabled: &off, Set: set}, "f": {Set: set}})
}

func testHandles(t *testing.T, s store.Local, reopen func() store.Local) {
	ctx := context.Background()
	if h := got(s.Handles(ctx)); len(h) != 0 {
		t.Fatalf("a new store holds %v", h)
	}
	full := store.Handle{
		Key: "k2", Driver: "process", Server: "fs", Session: "ses_1", Dir: "/state/i/1",
		Data: json.RawMessage(`{"pid":1,"n":12345678901234567890}`), SpecHash: "abc",
		Link: json.RawMessage(`{"initialize": {}}`), Created: day,
	}
	bare := store.Handle{Key: "k1", Driver: "process", Server: "shared", Link: json.RawMessage{}}
	must(t, s.PutHandle(ctx, store.Handle{Key: "k2", Driver: "old", Link: json.RawMessage(`1`)}))
	must(t, s.PutHandle(ctx, full))
	must(t, s.PutHandle(ctx, bare))
	bare.Link = nil // an empty message is none
	must(t, s.PutHandle(ctx, store.Handle{Key: "k3"}))
	must(t, s.DeleteHandle(ctx, "k3"))
	must(t, s.DeleteHandle(ctx, "k3"))
	s = reopen()
	same(t, got(s.Handles(ctx)), []store.Handle{bare, full})
}

func testClients(t *testing.T, s store.Local, reopen func() store.Local) {
	ctx := context.Background()
	a := store.Client{
		ID: "A", Session: "ses_1", View: "/mcp", Principal: "ann", Protocol: "2025-11-25",
		Init: json.RawMessage(`{"capabilities":{}}`), Created: day, Used: day,
	}
	b := store.Client{ID: "b", Session: "ses_1"}
	c := store.Client{ID: "c", Session: "ses_2"}
	for _, x := range []store.Client{c, b, {ID: "d"}, {ID: "A"}, a} {
		must(t, s.PutClient(ctx, x))
	}
	must(t, s.DeleteClient(ctx, "d"))
	must(t, s.DeleteClient(ctx, "d"))
	must(t, s.TouchClients(ctx, map[string]time.Time{"A": day.Add(-1), "b": day, "none": day}))
	b.Used = day
	s = reopen()
	same(t, got(s.Clients(ctx)), []store.Client{a, b, c})
}

func testGatewayID(t *testing.T, s store.Local, reopen func() store.Local) {
	ctx := context.Background()
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() { ids[i] = got(s.GatewayID(ctx)) })
	}
	wg.Wait()
	s = reopen()
	last := got(s.GatewayID(ctx))
	if !strings.HasPrefix(last, "gw_") || len(last) < 10 {
		t.Errorf("odd id %q", last)
	}
	for _, id := range ids {
		if id != last {
			t.Fatalf("ids differ: %v and %s", ids, last)
		}
	}
}

func testOddValues(t *testing.T, s store.Local, reopen func() store.Local) {
	ctx := context.Background()
	big := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	var want []store.Handle
	for i, odd := range []string{"", "'; DROP TABLE handles; --", "日本語 \U0001F600", "%s?_#&", strings.Repeat("k", 10000)} {
		h := store.Handle{Key: fmt.Sprintf("%d%s", i, odd), Driver: odd, Server: odd, Session: odd, Dir: odd, SpecHash: odd, Data: json.RawMessage(`{"a" :  1}`), Created: time.Unix(0, 1).UTC()}
		if i == 0 {
			h.Data = big
		}
		want = append(want, h)
		must(t, s.PutHandle(ctx, h))
	}
	s = reopen()
	same(t, got(s.Handles(ctx)), want)
	must(t, s.DeleteHandle(ctx, want[1].Key))
	same(t, got(s.Handles(ctx)), append(want[:1:1], want[2:]...))
}

func testManyHandles(t *testing.T, s store.Local, reopen func() store.Local) {
	ctx := context.Background()
	atOnce(t, func(i, j int, id string) error {
		err := errors.Join(s.PutHandle(ctx, store.Handle{Key: id}), s.PutClient(ctx, store.Client{ID: id}),
			s.TouchClients(ctx, map[string]time.Time{id: day, "other": day}), s.PutCalls(ctx, []store.Call{{Seq: int64(i*10 + j + 1)}, {Seq: 1000}}))
		if j%2 == 1 {
			err = errors.Join(err, s.DeleteHandle(ctx, id))
		}
		_, listErr := s.Handles(ctx)
		_, callsErr := s.Calls(ctx, store.CallFilter{})
		return errors.Join(err, listErr, callsErr)
	})
	s = reopen()
	if n := len(got(s.Handles(ctx))); n != 80 {
		t.Errorf("%d handles, want 80", n)
	}
	if n := len(got(s.Calls(ctx, store.CallFilter{Limit: 1000}))); n != 161 {
		t.Errorf("%d calls, want 161", n)
	}
	if n := len(got(s.Clients(ctx))); n != 160 {
		t.Errorf("%d clients, want 160", n)
	}
}

func testSessionsAtOnce(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	atOnce(t, func(_, _ int, id string) error {
		_, err := s.Sessions(ctx)
		return errors.Join(err, s.PutSessions(ctx, store.Session{ID: id}), s.TouchSessions(ctx, map[string]time.Time{id: day, "other": day}))
	})
	s = reopen()
	sessions := got(s.Sessions(ctx))
	if len(sessions) != 160 {
		t.Errorf("%d sessions, want 160", len(sessions))
	}
	for _, x := range sessions {
		if !x.Used.Equal(day) {
			t.Errorf("session %s was used %v", x.ID, x.Used)
		}
	}
}

// atOnce does something ten times in each of sixteen goroutines.
func atOnce(t *testing.T, do func(i, j int, id string) error) {
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 10 {
				id := fmt.Sprintf("%02d-%02d", i, j)
				if err := do(i, j, id); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
}

func testCancelledLocal(t *testing.T, s store.Local, _ func() store.Local) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.PutHandle(ctx, store.Handle{Key: "x"}); err == nil {
		t.Error("a cancelled write gave no error")
	}
	if _, err := s.Handles(ctx); err == nil {
		t.Error("a cancelled list gave no error")
	}
	if err := s.PutCalls(ctx, []store.Call{{Seq: 1}}); err == nil {
		t.Error("a cancelled write of calls gave no error")
	}
	if _, err := s.Calls(ctx, store.CallFilter{}); err == nil {
		t.Error("a cancelled list of calls gave no error")
	}
	if all := got(s.Calls(context.Background(), store.CallFilter{})); len(all) != 0 {
		t.Errorf("a cancelled write of calls was done: %v", all)
	}
	if all := got(s.Handles(context.Background())); len(all) != 0 {
		t.Errorf("a cancelled write was done: %v", all)
	}
}

func testCancelledShared(t *testing.T, s store.Shared, _ func() store.Shared) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.PutSessions(ctx, store.Session{ID: "a"}, store.Session{ID: "b"}); err == nil {
		t.Error("a cancelled write of sessions gave no error")
	}
	if _, err := s.Sessions(ctx); err == nil {
		t.Error("a cancelled list gave no error")
	}
	if all := got(s.Sessions(context.Background())); len(all) != 0 {
		t.Errorf("a cancelled write of sessions was done: %v", all)
	}
}

func testLocalAfterClosing(t *testing.T, s store.Local, _ func() store.Local) {
	ctx := context.Background()
	must(t, s.Close())
	must(t, s.Close())
	if err := s.PutHandle(ctx, store.Handle{Key: "a"}); err == nil {
		t.Error("a write after Close gave no error")
	}
	if _, err := s.Calls(ctx, store.CallFilter{}); err == nil {
		t.Error("a list of calls after Close gave no error")
	}
	if _, _, err := s.LastCall(ctx); err == nil {
		t.Error("the newest call after Close gave no error")
	}
}

func testSharedAfterClosing(t *testing.T, s store.Shared, _ func() store.Shared) {
	ctx := context.Background()
	must(t, s.Close())
	must(t, s.Close())
	if err := PutOverride(ctx, s, "a", store.Override{}); err == nil {
		t.Error("a write after Close gave no error")
	}
	if _, err := s.Sessions(ctx); err == nil {
		t.Error("a list after Close gave no error")
	}
	if _, err := s.FindSessions(ctx, store.SessionFilter{}); err == nil {
		t.Error("a search after Close gave no error")
	}
	if err := s.PutSessions(ctx, store.Session{ID: "a"}); err == nil {
		t.Error("a session after Close gave no error")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// got is for calls whose failure ends the test; a panic in a test names the line.
func got[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// same compares what a store gave back with what went in. Times are compared
// as instants.
func same[T any](t *testing.T, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(utc(got), utc(want)) {
		t.Errorf("got  %.2000s\nwant %.2000s", show(got), show(want))
	}
}

// utc returns a copy of a list with all its times in UTC.
func utc(v any) any {
	list := reflect.ValueOf(v)
	if list.Kind() != reflect.Slice || list.IsNil() {
		return v
	}
	out := reflect.MakeSlice(list.Type(), list.Len(), list.Len())
	reflect.Copy(out, list)
	for i := range out.Len() {
		if out.Index(i).Kind() != reflect.Struct {
			return v
		}
		for _, field := range out.Index(i).Fields() {
			if at, ok := field.Interface().(time.Time); ok {
				field.Set(reflect.ValueOf(at.UTC()))
			}
		}
	}
	return out.Interface()
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(b)
}
