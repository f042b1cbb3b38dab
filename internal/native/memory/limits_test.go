package memory

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestLimits(t *testing.T) {
	store, dir := state(t)
	cs := serve(t, open(t, store, dir), nativetest.Modern, map[string]any{
		"max_entities": 3, "max_relations": 2, "max_observations": 3, "max_value_bytes": 10, "max_graph_bytes": 450,
	})
	long := strings.Repeat("x", 11)
	for _, tt := range []struct {
		call
		err string
	}{
		{call{"create_entities", dict("entities", list1(ent("a", "t", "1", "2"), ent("b", "t")))}, ""},
		{call{"create_entities", dict("entities", list1(ent("c", "t"), ent("d", "t")))}, "4 entities, more than the 3 it may have (settings.max_entities)"},
		{call{"create_entities", dict("entities", list1(ent(long, "t")))}, "11 bytes, more than the 10"},
		{call{"create_entities", dict("entities", list1(ent("c", long)))}, "max_value_bytes"},
		{call{"create_entities", dict("entities", list1(ent("c", "t", long)))}, "max_value_bytes"},
		{call{"create_entities", dict("entities", list1(ent("c", "t", "1", "2", "3", "4")))}, `entity "c" would have 4 observations, more than the 3`},
		{call{"add_observations", dict("observations", list1(dict("entityName", "a", "contents", list1("2", "3"))))}, ""},
		{call{"add_observations", dict("observations", list1(dict("entityName", "b", "contents", list1("1")), dict("entityName", "a", "contents", list1("4"))))}, "max_observations"},
		{call{"add_observations", dict("observations", list1(dict("entityName", "b", "contents", list1(long))))}, "max_value_bytes"},
		{call{"create_relations", dict("relations", list1(rel("a", "b", "1"), rel("a", "b", "2"), rel("a", "b", "3")))}, "3 relations, more than the 2"},
		{call{"create_relations", dict("relations", list1(rel("a", "b", long)))}, "max_value_bytes"},
		{call{"create_relations", dict("relations", list1(rel("a", "b", "1"), rel("a", "b", "2")))}, ""},
		{call{"create_entities", dict("entities", list1(ent("c", "t", "1234567890", "2234567890", "3234567890")))}, "max_graph_bytes"},
		// What is full can be emptied.
		{call{"delete_entities", dict("entityNames", list1("a"))}, ""},
		{call{"create_entities", dict("entities", list1(ent("c", "t", "1234567890", "2234567890", "3234567890")))}, ""},
	} {
		res := nativetest.Call(t, cs, tt.tool, tt.args)
		if text := nativetest.Text(res); res.IsError != (tt.err != "") || !strings.Contains(text, tt.err) {
			t.Errorf("%s %v: %s, want %q", tt.tool, tt.args, text, tt.err)
		}
	}
	if got := nativetest.Text(nativetest.Call(t, cs, "open_nodes", dict("names", list1("b")))); !strings.Contains(got, `"observations": []`) {
		t.Errorf("a refused call has left something: %s", got)
	}
}

func TestLargeAnswers(t *testing.T) {
	store, dir := state(t)
	cs := serve(t, open(t, store, dir), nativetest.Modern, map[string]any{"max_result_bytes": 1000})
	for i := range 20 {
		nativetest.Call(t, cs, "create_entities", dict("entities", list1(ent(fmt.Sprint("e", i), "t", strings.Repeat("y", 50)))))
	}
	for _, c := range []call{{"read_graph", nil}, {"search_nodes", dict("query", "y")}} {
		res := nativetest.Call(t, cs, c.tool, c.args)
		if text := nativetest.Text(res); !res.IsError || !strings.Contains(text, "settings.max_result_bytes") || len(text) > 300 {
			t.Errorf("%s: %s", c.tool, text)
		}
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: resourceURI}); err == nil || !strings.Contains(err.Error(), "max_result_bytes") {
		t.Errorf("resource: err = %v", err)
	}
	if res := nativetest.Call(t, cs, "search_nodes", dict("query", "E19")); res.IsError || strings.Count(nativetest.Text(res), `"name"`) != 1 {
		t.Errorf("search: %s", nativetest.Text(res))
	}
}

func TestSettings(t *testing.T) {
	store, dir := state(t)
	h := open(t, store, dir)
	for _, bad := range []map[string]any{{"max_entities": 0}, {"max_result_bytes": -1}, {"max_relations": "many"}, {"file": "x"}} {
		if _, err := New(bad, h); err == nil || !strings.Contains(err.Error(), "settings.") {
			t.Errorf("New(%v): err = %v", bad, err)
		}
	}
}

func TestUnknown(t *testing.T) {
	store, dir := state(t)
	cs := serve(t, open(t, store, dir), nativetest.Modern, nil)
	if res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "nope"}); err == nil {
		t.Errorf("an unknown tool answers %v", res)
	}
	if res, err := cs.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "x"}); err == nil {
		t.Errorf("an unknown cursor gives %v", res)
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "memory://nope"}); err == nil {
		t.Error("an unknown resource is read")
	}
}

// TestSubscribers hear of each change, in both eras.
func TestSubscribers(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			store, dir := state(t)
			s, err := New(nil, open(t, store, dir))
			if err != nil {
				t.Fatal(err)
			}
			heard := make(chan string, 1000)
			cs := nativetest.Connect(t, s, era, &mcp.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { heard <- req.Params.URI },
			})
			if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: resourceURI}); err != nil {
				t.Fatal(err)
			}
			for i := 0; len(heard) == 0; i++ { // in the newer era it takes effect in a while
				if i == 10_000 {
					t.Fatal("nothing was heard")
				}
				nativetest.Call(t, cs, "create_entities", dict("entities", list1(ent("a", "b"))))
			}
			if got := <-heard; got != resourceURI {
				t.Errorf("heard of %s", got)
			}
		})
	}
}

// TestTogether has many callers: no change of one is lost to another, as can
// happen with the reference.
func TestTogether(t *testing.T) {
	store, dir := state(t)
	h := open(t, store, dir)
	cs := serve(t, h, nativetest.Modern, nil)
	nativetest.Call(t, cs, "create_entities", dict("entities", list1(ent("all", "t"))))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 10 {
				name := fmt.Sprintf("%d/%d", i, j)
				nativetest.Call(t, cs, "create_entities", dict("entities", list1(ent(name, "t"))))
				nativetest.Call(t, cs, "create_relations", dict("relations", list1(rel(name, "all", "is in"))))
				nativetest.Call(t, cs, "add_observations", dict("observations", list1(dict("entityName", "all", "contents", list1(name)))))
				nativetest.Call(t, cs, "search_nodes", dict("query", name))
			}
		})
	}
	wg.Wait()
	g := h.Value()
	if _, all, _ := g.first("all"); g.entities.Len() != 81 || g.relations.Len() != 80 || len(all.Observations) != 80 {
		t.Errorf("%d entities, %d relations, %d observations", g.entities.Len(), g.relations.Len(), len(all.Observations))
	}
}
