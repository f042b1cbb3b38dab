package session_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
)

func (w *world) mint(s *session.Session, o session.MintOptions) (rec store.SessionToken, token string) {
	w.t.Helper()
	rec, token, err := w.MintToken(w.t.Context(), s, o)
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return rec, token
}

// by is the id of the session that a token leads to, and the run of the token.
func (w *world) by(token string) string {
	sum := sha256.Sum256([]byte(token))
	s, _, limit := w.ByToken(hex.EncodeToString(sum[:]))
	switch {
	case s == nil:
		return "none"
	case limit == nil:
		return s.ID
	}
	return s.ID + " " + limit.Run
}

func statusOf(err error) int {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func TestFurtherTokens(t *testing.T) {
	w := newWorld(t, kept)
	owner := session.Owner{Name: "ada", Pinned: []byte(`{"name":"ada"}`)}
	s, own, err := w.OpenSession(t.Context(), session.OpenOptions{Owner: owner})
	if err != nil {
		t.Fatal(failure(err))
	}
	servers := []string{"two", "one"}
	a, first := w.mint(s, session.MintOptions{Run: "run_1", Servers: servers, Allow: []string{"fork"}, TTL: time.Hour})
	_, second := w.mint(s, session.MintOptions{Run: "run_1", Servers: []string{}})
	c, third := w.mint(s, session.MintOptions{Run: "run_2"})
	servers[0] = "changed" // the caller's own
	check := func(when string) {
		t.Helper()
		for token, want := range map[string]string{own: s.ID, first: s.ID + " run_1", second: s.ID + " run_1", third: s.ID + " run_2"} {
			if got := w.by(token); got != want {
				t.Errorf("%s a token leads to %s, want %s", when, got, want)
			}
		}
		sum := sha256.Sum256([]byte(first))
		_, o, limit := w.ByToken(hex.EncodeToString(sum[:]))
		if o.Name != "ada" || string(o.Pinned) != `{"name":"ada"}` {
			t.Errorf("%s the owner is %+v", when, o)
		}
		if limit.Token != a.ID || !slices.Equal(limit.Servers, []string{"one", "two"}) || !limit.Allows("fork") || limit.Allows("close") || limit.Expires.Sub(a.Created) != time.Hour {
			t.Errorf("%s the limit is %+v", when, limit)
		}
		sum = sha256.Sum256([]byte(second))
		if _, _, limit := w.ByToken(hex.EncodeToString(sum[:])); limit.Servers == nil || len(limit.Servers) > 0 || !limit.Expires.IsZero() {
			t.Errorf("%s a limit to no server is %+v", when, limit)
		}
	}
	check("at first")
	w.reopen(kept)
	s = w.Get(s.ID)
	check("after a restart")
	child := w.fork(s, 1)[0]
	if all := w.Minted(child); len(all) != 0 {
		t.Errorf("a fork has %+v", all)
	}
	if all := w.Minted(s); len(all) != 3 || all[0].ID != a.ID || all[2].ID != c.ID {
		t.Errorf("the session has %+v", all)
	}
	// Another token of its own changes nothing about them.
	if own, _, err = w.NewToken(t.Context(), s); err != nil {
		t.Fatal(failure(err))
	}
	check("after the session has another token")

	if n, err := w.RevokeTokens(t.Context(), s, func(t store.SessionToken) bool { return t.Run == "run_1" }); n != 2 || err != nil {
		t.Errorf("revoked %d, %v", n, failure(err))
	}
	for range 2 {
		if a, b, c := w.by(first), w.by(second), w.by(third); a != "none" || b != "none" || c != s.ID+" run_2" {
			t.Errorf("after they were revoked tokens lead to %s, %s, %s", a, b, c)
		}
		w.reopen(kept)
		s = w.Get(s.ID)
	}
	if err := w.RevokeToken(t.Context(), s, a.ID); statusOf(err) != http.StatusNotFound {
		t.Errorf("revoking what is revoked: %v", err)
	}
	if err := w.CloseSession(t.Context(), s); err != nil {
		t.Fatal(failure(err))
	}
	if got := w.by(third) + w.by(own); got != "nonenone" {
		t.Errorf("tokens of a closed session lead to %s", got)
	}
	if _, _, err := w.MintToken(t.Context(), s, session.MintOptions{}); err == nil {
		t.Error("a closed session has another token")
	}
	if all, err := w.db.SessionTokens(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("recorded are %+v, %v", all, err)
	}
	d, err := w.Default(t.Context(), "ada")
	if err != nil {
		t.Fatal(failure(err))
	}
	if _, _, err := w.MintToken(t.Context(), d, session.MintOptions{}); err == nil {
		t.Error("a session that came by itself has a token")
	}
}

func TestFurtherTokensExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kept)
		s := w.opened(session.OpenOptions{})
		_, short := w.mint(s, session.MintOptions{Run: "short", TTL: time.Minute})
		_, long := w.mint(s, session.MintOptions{Run: "long", TTL: time.Hour})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := w.by(short); got != s.ID+" short" {
			t.Errorf("before its time a token leads to %s", got)
		}
		time.Sleep(30 * time.Second)
		if all := w.Minted(s); len(all) != 1 || all[0].Run != "long" {
			t.Errorf("when its time is over, there are %+v", all)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.by(short); got != "none" {
			t.Errorf("after its time a token leads to %s", got)
		}
		if all, err := w.db.SessionTokens(t.Context()); len(all) != 1 || err != nil {
			t.Errorf("recorded are %+v, %v", all, err)
		}
		w.close(true)
		time.Sleep(time.Hour)
		w.open(kept)
		if got := w.by(long); got != "none" {
			t.Errorf("a token whose time was over without a gateway leads to %s", got)
		}
		if all, err := w.db.SessionTokens(t.Context()); len(all) != 0 || err != nil {
			t.Errorf("recorded are %+v, %v", all, err)
		}
	})
}

func TestManyFurtherTokens(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	const most = 1000
	var mu sync.Mutex
	var wg sync.WaitGroup
	made, refused := 0, 0
	for range 8 {
		wg.Go(func() {
			for range most/8 + 1 {
				_, _, err := w.MintToken(t.Context(), s, session.MintOptions{Run: "r"})
				mu.Lock()
				if err == nil {
					made++
				} else if statusOf(err) == http.StatusTooManyRequests {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if made != most || refused != 8 {
		t.Errorf("%d were made, and %d refused", made, refused)
	}
	if n, err := w.RevokeTokens(t.Context(), s, func(store.SessionToken) bool { return true }); n != most || err != nil {
		t.Errorf("revoked %d, %v", n, err)
	}
	w.mint(s, session.MintOptions{})
}

// TestMintWhileClosing checks that no token outlives a session that closes meanwhile.
func TestMintWhileClosing(t *testing.T) {
	w := newWorld(t, kept)
	for range 20 {
		s := w.opened(session.OpenOptions{})
		var tokens []string
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				_, token, err := w.MintToken(context.Background(), s, session.MintOptions{})
				if err != nil {
					return
				}
				tokens = append(tokens, token)
			}
		})
		if err := w.CloseSession(t.Context(), s); err != nil {
			t.Error(failure(err))
		}
		wg.Wait()
		for _, token := range tokens {
			if got := w.by(token); got != "none" {
				t.Fatalf("a token leads to %s, which is closed", got)
			}
		}
	}
	if all, err := w.db.SessionTokens(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("recorded are %+v, %v", all, err)
	}
}

// tokenless is a store that can't write tokens of sessions.
type tokenless struct {
	store.Store
	fail *bool
}

var errTokenless = errors.New("the disk is full")

func (f tokenless) PutSessionToken(ctx context.Context, t store.SessionToken) error {
	if *f.fail {
		return errTokenless
	}
	return f.Store.PutSessionToken(ctx, t)
}

func (f tokenless) DeleteSessionTokens(ctx context.Context, ids ...string) error {
	if *f.fail {
		return errTokenless
	}
	return f.Store.DeleteSessionTokens(ctx, ids...)
}

// TestTokensThatAreNotWritten checks that a token is let in and refused as it is
// recorded.
func TestTokensThatAreNotWritten(t *testing.T) {
	fail := false
	w := makeWorld(t, kept, func(w *world) {
		w.wrap = func(s store.Store) store.Store { return tokenless{s, &fail} }
	})
	s := w.opened(session.OpenOptions{})
	rec, token := w.mint(s, session.MintOptions{Run: "r"})
	fail = true
	if _, _, err := w.MintToken(t.Context(), s, session.MintOptions{}); !errors.Is(err, errTokenless) {
		t.Errorf("made all the same: %v", err)
	}
	if err := w.RevokeToken(t.Context(), s, rec.ID); !errors.Is(err, errTokenless) {
		t.Errorf("revoked all the same: %v", err)
	}
	if got := w.by(token); got != s.ID+" r" {
		t.Errorf("a token that is still recorded leads to %s", got)
	}
	fail = false
	if all := w.Minted(s); len(all) != 1 {
		t.Errorf("the session has %+v", all)
	}
}
