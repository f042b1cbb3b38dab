package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testSessionTokens(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	open := func(id string) store.Session {
		return store.Session{ID: id, Owner: "ann", Kind: "opened", Created: day}
	}
	must(t, s.PutSessions(ctx, open("ses_1"), open("ses_2"), open("ses_3"), open("ses_4")))
	token := func(id, session string) store.SessionToken {
		return store.SessionToken{ID: id, Session: session, Hash: "hash of " + id}
	}
	full := store.SessionToken{
		ID: "b", Session: "ses_1", Hash: "ab12", Run: "run_'1", Servers: []string{"fs", "d'"}, Allow: []string{"fork"}, Created: day, Expires: day.Add(time.Hour),
	}
	nowhere := store.SessionToken{ID: "a", Session: "ses_1", Hash: "cd34", Servers: []string{}}
	must(t, s.PutSessionToken(ctx, token("b", "ses_1")))
	must(t, s.PutSessionToken(ctx, full))
	must(t, s.PutSessionToken(ctx, nowhere))
	for _, id := range []string{"c", "d", "e", "f"} {
		must(t, s.PutSessionToken(ctx, token(id, "ses_2")))
	}
	must(t, s.PutSessionToken(ctx, token("g", "ses_3")))
	must(t, s.PutSessionToken(ctx, token("h", "ses_4")))
	must(t, s.DeleteSessionTokens(ctx))
	must(t, s.DeleteSessionTokens(ctx, "d", "never there", "f"))
	s = reopen()
	same(t, got(s.SessionTokens(ctx)), []store.SessionToken{nowhere, full, token("c", "ses_2"), token("e", "ses_2"), token("g", "ses_3"), token("h", "ses_4")})

	// They go with their session, however it goes.
	closed := open("ses_2")
	closed.Closed = day
	must(t, s.PutSessions(ctx, closed, open("ses_1")))
	must(t, s.DeleteSession(ctx, "ses_3"))
	if _, err := s.DropSessions(ctx, day.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"ses_2", "ses_3", "ses_none", ""} {
		if err := s.PutSessionToken(ctx, token("z", gone)); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("a token of session %q: %v", gone, err)
		}
	}
	s = reopen()
	same(t, got(s.SessionTokens(ctx)), []store.SessionToken{nowhere, full, token("h", "ses_4")})
	// Many at once, which is one step.
	var ids []string
	for i := range 300 {
		id := fmt.Sprintf("m%03d", i)
		must(t, s.PutSessionToken(ctx, token(id, "ses_4")))
		ids = append(ids, id)
	}
	must(t, s.DeleteSessionTokens(ctx, append(ids, "a", "b")...))
	same(t, got(s.SessionTokens(ctx)), []store.SessionToken{token("h", "ses_4")})
}
