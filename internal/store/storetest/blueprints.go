package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testBlueprints(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	if all := got(s.Blueprints(ctx)); len(all) != 0 {
		t.Fatalf("a new store has blueprints: %+v", all)
	}
	put := func(b store.Blueprint) {
		must(t, s.ChangeBlueprint(ctx, b.Name, func(*store.Blueprint) (*store.Blueprint, error) { return &b, nil }))
	}
	remove := func(*store.Blueprint) (*store.Blueprint, error) { return nil, nil }
	a := store.Blueprint{Name: "a", Owner: "ann", Operator: true, Body: json.RawMessage(`{"n":12345678901234567890,  "system_prompt":"${params.x}"}`), Changed: day}
	b := store.Blueprint{Name: "b", Body: json.RawMessage(`{}`), Changed: day.Add(time.Hour)}
	put(b)
	put(store.Blueprint{Name: "a", Owner: "other", Body: json.RawMessage(`1`), Changed: day.Add(-time.Hour)})
	put(store.Blueprint{Name: "gone"})
	put(a)
	must(t, s.ChangeBlueprint(ctx, "gone", remove))
	must(t, s.ChangeBlueprint(ctx, "never there", remove))
	refused := errors.New("no")
	for name, want := range map[string][]store.Blueprint{"a": {a}, "none": nil} {
		err := s.ChangeBlueprint(ctx, name, func(had *store.Blueprint) (*store.Blueprint, error) {
			var all []store.Blueprint
			if had != nil {
				all = append(all, *had)
			}
			same(t, all, want)
			return &store.Blueprint{Owner: "wrong"}, refused
		})
		if err != refused {
			t.Errorf("a change that is refused: %v", err)
		}
	}
	s = reopen()
	same(t, got(s.Blueprints(ctx)), []store.Blueprint{a, b})
	one, ok, err := s.Blueprint(ctx, "a")
	same(t, []store.Blueprint{one}, []store.Blueprint{a})
	if _, none, noErr := s.Blueprint(ctx, "A"); !ok || err != nil || none || noErr != nil {
		t.Errorf("one was read with %v %v, and none with %v %v", ok, err, none, noErr)
	}
	// Of many that change one at once, each sees what the one before it has written.
	atOnce(t, func(int, int, string) error {
		return s.ChangeBlueprint(ctx, "n", func(had *store.Blueprint) (*store.Blueprint, error) {
			n := 0
			if had != nil {
				if err := json.Unmarshal(had.Body, &n); err != nil {
					return nil, err
				}
			}
			return &store.Blueprint{Body: json.RawMessage(fmt.Sprint(n + 1))}, nil
		})
	})
	if n, _, err := s.Blueprint(ctx, "n"); err != nil || string(n.Body) != "160" {
		t.Errorf("160 changes came to %s (%v)", n.Body, err)
	}
}
