package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/store"
)

func key(k string, who ...string) []string { return append([]string{"Idempotency-Key", k}, who...) }

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	sessions := func() int {
		t.Helper()
		return len(want[api.SessionList](t, w, "GET", "/v1/sessions?closed=1", "", asOps...).Sessions)
	}
	first := w.ask(t, "POST", "/v1/sessions", `{"labels":{"a":"b"}}`, key("k1", asAda...)...)
	again := w.ask(t, "POST", "/v1/sessions", ` { "labels" : {"a":"b"} } `, key("k1", asAda...)...)
	if first.status != http.StatusOK || !bytes.Equal(first.body, again.body) {
		t.Fatalf("first %s\nagain %s", first.body, again.body)
	}
	var s api.OpenedSession
	decode(t, first.body, &s)
	w.restart()
	if after := w.ask(t, "POST", "/v1/sessions", `{"labels":{"a":"b"}}`, key("k1", asAda...)...); !bytes.Equal(first.body, after.body) {
		t.Errorf("after a restart: %s", after.body)
	}
	if n := sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	// The key is for this request of this principal.
	for _, tt := range []struct{ path, body string }{
		{"/v1/sessions", `{"labels":{"a":"c"}}`}, {"/v1/sessions", ``}, {"/v1/sessions/" + s.ID + "/forks", ``}, {"/v1/sessions/" + s.ID + "/snapshots", ``},
	} {
		if e := w.refused(t, http.StatusConflict, "POST", tt.path, tt.body, key("k1", asAda...)...); e.Kind != api.KindInvalid || e.Retryable {
			t.Errorf("%s %s: %+v", tt.path, tt.body, e)
		}
	}
	bobs := want[api.OpenedSession](t, w, "POST", "/v1/sessions", `{"labels":{"a":"b"}}`, key("k1", asBob...)...)
	if bobs.ID == s.ID || bobs.Token == s.Token {
		t.Error("bob got ada's session")
	}
	// Forks and snapshots.
	for _, tt := range []struct {
		path, body string
		who        []string
	}{
		{"/forks", `{"count":2}`, asAda}, {"/snapshots", `{"name":"base"}`, asAda}, {"/forks", ``, bearer(s.Token)}, {"/snapshots", `{}`, bearer(s.Token)},
	} {
		header := key("k-"+tt.path, tt.who...)
		one := w.ask(t, "POST", "/v1/sessions/"+s.ID+tt.path, tt.body, header...)
		two := w.ask(t, "POST", "/v1/sessions/"+s.ID+tt.path, tt.body, header...)
		if one.status != http.StatusOK || !bytes.Equal(one.body, two.body) {
			t.Errorf("%s: %s\n%s", tt.path, one.body, two.body)
		}
	}
	if n := sessions(); n != 5 {
		t.Errorf("%d sessions, want ada's, bob's and three forks", n)
	}
	// A token.
	one := w.ask(t, "POST", "/v1/sessions/"+s.ID+"/token", "", key("k-token", asAda...)...)
	two := w.ask(t, "POST", "/v1/sessions/"+s.ID+"/token", "", key("k-token", asAda...)...)
	if one.status != http.StatusOK || !bytes.Equal(one.body, two.body) {
		t.Errorf("a token: %s\n%s", one.body, two.body)
	}
	var other api.OpenedSession
	decode(t, one.body, &other)
	want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "", bearer(other.Token)...)
	w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions/"+s.ID+"/token", "", key("a b", asAda...)...)
	// Also when what it was made of is gone.
	parent := w.open(t, ``, asAda...)
	fork := w.ask(t, "POST", "/v1/sessions/"+parent.ID+"/forks", "", key("k3", asAda...)...)
	w.gone(t, "/v1/sessions/"+parent.ID, asAda...)
	if again := w.ask(t, "POST", "/v1/sessions/"+parent.ID+"/forks", "", key("k3", asAda...)...); fork.status != http.StatusOK || !bytes.Equal(fork.body, again.body) {
		t.Errorf("after the parent's end: %s\n%s", fork.body, again.body)
	}
	// What failed may be tried again with the same key.
	w.refused(t, http.StatusNotFound, "POST", "/v1/sessions", `{"from":"later"}`, key("k2", asAda...)...)
	want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{"name":"later"}`, asAda...)
	want[api.OpenedSession](t, w, "POST", "/v1/sessions", `{"from":"later"}`, key("k2", asAda...)...)

	for _, bad := range []string{"a b", "ä", strings.Repeat("k", 257)} {
		w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions", "", key(bad, asAda...)...)
	}
	if r := w.ask(t, "POST", "/v1/sessions", "", key(strings.Repeat("~", 256), asAda...)...); r.status != http.StatusOK {
		t.Errorf("a long key: status %d %s", r.status, r.body)
	}
	if log := w.log.String(); strings.Contains(log, s.Token) || strings.Contains(log, other.Token) || strings.Contains(log, bobs.Token) {
		t.Error("a token is in the log")
	}
}

func TestIdempotencyRace(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var answers []string
	for range 20 {
		wg.Go(func() {
			r, err := w.try(t, "POST", "/v1/sessions", `{}`, "Content-Type", "application/json", "Idempotency-Key", "same")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			answers = append(answers, string(r.body))
		})
	}
	wg.Wait()
	slices.Sort(answers)
	if all := slices.Compact(answers); len(all) != 1 || !strings.Contains(all[0], `"token"`) {
		t.Errorf("%d different answers: %q", len(all), all)
	}
	if list := want[api.SessionList](t, w, "GET", "/v1/sessions", ""); len(list.Sessions) != 1 {
		t.Errorf("%d sessions", len(list.Sessions))
	}
}

// fullDisk is a store whose disk is full where creations are noted.
type fullDisk struct {
	store.Creations
	begin, end atomic.Bool
}

func (f *fullDisk) BeginCreation(ctx context.Context, c store.Creation, since time.Time) (store.Creation, bool, error) {
	if f.begin.Load() {
		return store.Creation{}, false, errors.New("disk full")
	}
	return f.Creations.BeginCreation(ctx, c, since)
}

func (f *fullDisk) EndCreation(ctx context.Context, owner, key string, answer json.RawMessage) error {
	if f.end.Load() {
		return errors.New("disk full")
	}
	return f.Creations.EndCreation(ctx, owner, key, answer)
}

// TestIdempotencyDiskFull checks that nothing is left of a request that was not answered.
func TestIdempotencyDiskFull(t *testing.T) {
	t.Parallel()
	full := &fullDisk{}
	w := openWorldsWith(t, "", func(o *gateway.Options) { full.Creations, o.Creations = o.Creations, full })
	open := func() int { return len(want[api.SessionList](t, w, "GET", "/v1/sessions", "").Sessions) }
	full.begin.Store(true)
	w.refused(t, http.StatusBadGateway, "POST", "/v1/sessions", ``, key("a")...)
	full.begin.Store(false)
	full.end.Store(true)
	w.refused(t, http.StatusBadGateway, "POST", "/v1/sessions", ``, key("a")...)
	if n := open(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	full.end.Store(false)
	one := w.open(t, ``, key("a")...)
	if two := w.open(t, ``, key("a")...); two.ID != one.ID || open() != 1 {
		t.Errorf("got %s and %s", one.ID, two.ID)
	}
	full.end.Store(true)
	w.refused(t, http.StatusBadGateway, "POST", "/v1/sessions/"+one.ID+"/token", ``, key("b")...)
	want[api.Session](t, w, "GET", "/v1/sessions/"+one.ID, "", bearer(one.Token)...)
}
