package session_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestOpenWithAnID(t *testing.T) {
	w := newWorld(t, kept)
	l := listed(t, kept, "own", scratch)
	o := session.OpenOptions{ID: agentID, Owner: session.Owner{Name: "ada", Pinned: []byte(`{"name":"ada"}`)}, List: &l}
	var wg sync.WaitGroup
	var mu sync.Mutex
	opened, all := 0, make(map[*session.Session]bool)
	for range 8 {
		wg.Go(func() {
			s, first, err := w.OpenAs(context.Background(), o)
			if err != nil {
				t.Error(failure(err))
			}
			mu.Lock()
			defer mu.Unlock()
			if all[s] = true; first {
				opened++
			}
		})
	}
	wg.Wait()
	if opened != 1 || len(all) != 1 {
		t.Fatalf("%d were opened, and there are %d", opened, len(all))
	}
	s := w.Get(agentID)
	wantServers(t, "the session", s, "own scratch")
	o.Owner.Pinned = []byte(`{ "name": "ada" }`)
	if again, _, err := w.OpenAs(t.Context(), o); err != nil || again != s {
		t.Errorf("the same again: %v", err)
	}
	bad := o
	bad.Owner.Name = "bob"
	_, _, err := w.OpenAs(t.Context(), bad)
	testkit.Has(t, "of another owner", failure(err), "invalid: ", agentID)
	bad = o
	bad.List = nil
	_, _, err = w.OpenAs(t.Context(), bad)
	testkit.Has(t, "without a list", failure(err), "invalid: ", agentID)
	bad = o
	bad.Creation = "other"
	_, _, err = w.OpenAs(t.Context(), bad)
	testkit.Has(t, "of another request", failure(err), "invalid: ", agentID)
	for _, id := range []string{"", "ses_", "agent", "ses_0123456789AB", "ses_../../../etc", "ses_" + strings.Repeat("0", 65)} {
		bad = o
		bad.ID = id
		_, _, err = w.OpenAs(t.Context(), bad)
		testkit.Has(t, "the id "+id, failure(err), "invalid: ")
	}
	w.crash(kept)
	if again, first, err := w.OpenAs(t.Context(), o); err != nil || first || again.ID != agentID {
		t.Errorf("after a restart: %v", err)
	}
	if err := w.CloseSession(t.Context(), w.Get(agentID)); err != nil {
		t.Fatal(err)
	}
	_, _, err = w.OpenAs(t.Context(), o)
	testkit.Has(t, "one that was closed", failure(err), "lost: ", "closed")
}

// An open that fails leaves nothing behind, and its id can be used.
func TestOpenWithAnIDThatFails(t *testing.T) {
	w := newWorld(t, kept)
	l := listed(t, kept, `lost={"command": "missing", "eager": true}`)
	o := session.OpenOptions{ID: agentID, List: &l}
	_, _, err := w.OpenAs(t.Context(), o)
	testkit.Has(t, "an open", failure(err), "not found on PATH")
	wantLeft(t, w)
	if files, _ := filepath.Glob(filepath.Join(w.dir, "catalogs", "*")); len(files) != 0 {
		t.Errorf("left are %q", files)
	}
	w.agent(agentID, listed(t, kept, "own"))
}

func TestSessionWithoutServers(t *testing.T) {
	w := newWorld(t, kept)
	s := w.agent(agentID, catalog.List{})
	wantServers(t, "the session", s, "")
	testkit.Has(t, "a call", do(t.Context(), t, s, "own", "dump"), "invalid: ", `no server "own"`)
	child, snap := w.fork(s, 1)[0], w.frozen(s, "")
	wantServers(t, "a fork", child, "")
	wantServers(t, "one from its snapshot", w.opened(session.OpenOptions{From: snap.ID}), "")
	w.crash(kept)
	wantServers(t, "after a restart", w.Get(agentID), "")
	wantServers(t, "a fork after a restart", w.Get(child.ID), "")
	w.adapted(w.Get(agentID), listed(t, kept, "mem"))
	set(t, w.Get(agentID), "mem", "it", "1")
	w.adapted(w.Get(agentID), catalog.List{})
	wantServers(t, "emptied", w.Get(agentID), "")
}
