package storetest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
)

func testToolLists(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	has := func(digest, want string) {
		t.Helper()
		tools, ok, err := s.ToolList(ctx, digest)
		if err != nil || ok != (want != "") || string(tools) != want {
			t.Errorf("the list %s is %s, %v, %v; want %s", digest, tools, ok, err, want)
		}
	}
	event := func(session, digest string) store.Event {
		return store.Event{Session: session, At: day, Kind: store.EventTools, Call: 7, Data: json.RawMessage(`{"tools":"` + digest + `"}`)}
	}
	has("a", "")
	must(t, s.PutSessions(ctx, store.Session{ID: "ses_1"}, store.Session{ID: "ses_2"}))
	must(t, s.PutToolList(ctx, "a", json.RawMessage(`[1, 2]`), event("ses_1", "a")))
	must(t, s.PutToolList(ctx, "a", json.RawMessage(`[1, 2]`), event("ses_2", "a")))
	must(t, s.PutToolList(ctx, "b", json.RawMessage(`[]`), event("ses_2", "b")))
	must(t, s.PutEvents(ctx, store.Event{Session: "ses_1", At: day, Kind: store.EventTools, Data: json.RawMessage(`{"reason":"too large"}`)}))
	must(t, s.DropToolLists(ctx))
	s = reopen()
	has("a", `[1, 2]`)
	has("b", `[]`)
	if all := got(s.Events(ctx, "ses_2")); len(all) != 2 || all[0].Kind != store.EventTools || all[0].Call != 7 || all[0].N == 0 {
		t.Errorf("the events are %+v", all)
	}
	must(t, s.DeleteSession(ctx, "ses_2"))
	must(t, s.DropToolLists(ctx))
	has("a", `[1, 2]`)
	has("b", "")
	must(t, s.DeleteSession(ctx, "ses_1"))
	must(t, s.DropToolLists(ctx))
	has("a", "")
}
