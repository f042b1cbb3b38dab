package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// TestForksEndWithTheirParent checks that a caller with no more than a
// session's token makes nothing that lasts longer than the session, in any
// generation.
func TestForksEndWithTheirParent(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	fork := func(id, body string, who ...string) api.OpenedSession {
		t.Helper()
		return want[api.Forks](t, w, "POST", "/v1/sessions/"+id+"/forks", body, who...).Sessions[0]
	}
	s := w.open(t, `{"ttl":"1h","idle":"10m"}`, asAda...)
	for _, body := range []string{``, `{"ttl":"0s","idle":"0s"}`, `{"ttl":"90h","idle":"90h"}`} {
		parent := s
		for range 3 {
			child := fork(parent.ID, body, bearer(parent.Token)...)
			if child.Expires.IsZero() || child.Expires.After(parent.Expires) || child.Expires.Before(s.Expires.Add(-time.Minute)) || child.Idle != "10m0s" {
				t.Errorf("%s: until %v, unused for %q; its parent until %v", body, child.Expires, child.Idle, parent.Expires)
			}
			parent = child
		}
	}
	if child := fork(s.ID, `{"ttl":"5m","idle":"1m"}`, bearer(s.Token)...); child.Expires.After(time.Now().Add(5*time.Minute)) || child.Idle != "1m0s" {
		t.Errorf("shorter: %+v", child.Session)
	}
	// Its owner, and who looks after all, may.
	for _, who := range [][]string{asAda, asOps} {
		if child := fork(s.ID, `{"ttl":"0s","idle":"0s"}`, who...); !child.Expires.IsZero() || child.Idle != "" {
			t.Errorf("an owner's: %+v", child.Session)
		}
	}
	// What has no end has children without one.
	free := w.open(t, `{"ttl":"0s","idle":"0s"}`, asAda...)
	if child := fork(free.ID, `{"ttl":"0s","idle":"0s"}`, bearer(free.Token)...); !child.Expires.IsZero() || child.Idle != "" {
		t.Errorf("without bounds: %+v", child.Session)
	}
}

// TestSlowForksEndWithTheirParent checks the same of children that took long to
// be made.
func TestSlowForksEndWithTheirParent(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	long, short := w.open(t, `{"ttl":"2h"}`), w.open(t, `{"ttl":"10m"}`)
	latest := time.Now().Add(time.Hour)
	if err := w.gw.EndBy(t.Context(), latest, w.rg.Get(long.ID), w.rg.Get(short.ID)); err != nil {
		t.Fatal(err)
	}
	w.restart()
	got := want[api.Session](t, w, "GET", "/v1/sessions/"+long.ID, "")
	if got.Expires.After(latest) || got.Expires.Before(latest.Add(-time.Minute)) {
		t.Errorf("one that would last longer ends at %v, want %v", got.Expires, latest)
	}
	if got := want[api.Session](t, w, "GET", "/v1/sessions/"+short.ID, ""); !got.Expires.Equal(short.Expires) {
		t.Errorf("one that does not ends at %v, was %v", got.Expires, short.Expires)
	}
}

// A number that is given and too small is refused by its name, and one that is left out is
// one.
func TestForkCounts(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	s := w.open(t, ``)
	forks := "/v1/sessions/" + s.ID + "/forks"
	for _, body := range []string{`{"count":0}`, `{"count":-1}`, `{"Count": 0 }`, `{"labels":{"a":"b"},"count":-0}`} {
		if e := w.refused(t, http.StatusBadRequest, "POST", forks, body); e.Kind != api.KindInvalid || !strings.Contains(strings.ToLower(e.Message), "count must be at least 1") {
			t.Errorf("%s: %+v", body, e)
		}
	}
	for _, body := range []string{``, `{}`, `{"count":null}`, `{"count":1}`} {
		if n := len(want[api.Forks](t, w, "POST", forks, body).Sessions); n != 1 {
			t.Errorf("%s makes %d forks", body, n)
		}
	}
	for _, n := range []string{"0", "-1"} {
		e := w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions", `{"members":{"mem":{"instances":`+n+`}}}`)
		if !strings.Contains(e.Message, "members.mem.instances must be at least 1") {
			t.Errorf("%s instances: %+v", n, e)
		}
	}
	if list := want[api.SessionList](t, w, "GET", "/v1/sessions", ""); len(list.Sessions) != 5 {
		t.Errorf("what was refused left something: %d sessions", len(list.Sessions))
	}
}

func TestForkLabels(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	labels := func(from, to int) string {
		m := make(map[string]string)
		for i := from; i < to; i++ {
			m[fmt.Sprint("k", i)] = "v"
		}
		b, _ := json.Marshal(map[string]any{"labels": m})
		return string(b)
	}
	s := w.open(t, labels(0, 60))
	forks := "/v1/sessions/" + s.ID + "/forks"
	if e := w.refused(t, http.StatusBadRequest, "POST", forks, labels(60, 65)); !strings.Contains(e.Message, "60 of the parent") || !strings.Contains(e.Message, "65") {
		t.Errorf("too many together: %+v", e)
	}
	// Those that take the place of the parent's are no more.
	f := want[api.Forks](t, w, "POST", forks, labels(10, 64))
	if n := len(f.Sessions[0].Labels); n != 64 {
		t.Errorf("%d labels", n)
	}
	w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions/"+f.Sessions[0].ID+"/forks", labels(64, 65))
	if list := want[api.SessionList](t, w, "GET", "/v1/sessions", ""); len(list.Sessions) != 2 {
		t.Errorf("what was refused left something: %d sessions", len(list.Sessions))
	}
}

// TestDeepTree checks that the tree of a family of any depth can be read.
func TestDeepTree(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	const deep = 1500
	var line []store.Session
	for i := range deep {
		s := store.Session{ID: fmt.Sprintf("ses_%012x", i+1), Kind: "opened", Created: time.Unix(int64(i), 0), Closed: time.Now(), Data: json.RawMessage(`{}`)}
		if i > 0 {
			s.Parent = line[i-1].ID
		}
		line = append(line, s)
	}
	twin := line[deep-1]
	twin.ID = "ses_00000000ffff"
	if err := w.db.PutSessions(context.Background(), append(line, twin)...); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{line[0].ID, line[deep-1].ID} {
		r := w.do(t, "GET", "/v1/sessions/"+id+"/tree", "")
		var tree api.Tree
		if err := json.Unmarshal(r.body, &tree); err != nil || r.status != http.StatusOK {
			t.Fatalf("status %d, %v", r.status, err)
		}
		depth := 0
		at := &tree
		for ; len(at.Children) > 0; at = &at.Children[0] {
			if len(at.Children) != 1 || at.More != 0 || at.Session.ID != line[depth].ID {
				t.Fatalf("at %d: %s with %d children and %d more", depth, at.Session.ID, len(at.Children), at.More)
			}
			depth++
		}
		if depth != 1000 || at.Session.ID != line[1000].ID || at.More != deep-1001+1 {
			t.Errorf("it ends at %d with %s and %d more", depth, at.Session.ID, at.More)
		}
	}
}
