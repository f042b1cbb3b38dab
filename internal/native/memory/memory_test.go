package memory

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// state makes an empty state in a store of its own.
func state(t testing.TB) (*layer.Store, string) {
	t.Helper()
	dir := t.TempDir()
	store, err := layer.OpenStore(layer.Options{Dir: filepath.Join(dir, "layers")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	at := filepath.Join(dir, "state")
	if err := store.Create(at, layer.Ref{}); err != nil {
		t.Fatal(err)
	}
	return store, at
}

func open(t testing.TB, store *layer.Store, dir string) *layer.Head[*Graph] {
	t.Helper()
	h, err := layer.Open(store, dir, Machine())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func serve(t testing.TB, h *layer.Head[*Graph], era string, settings map[string]any) *mcp.ClientSession {
	t.Helper()
	s, err := New(settings, h)
	if err != nil {
		t.Fatal(err)
	}
	return nativetest.Connect(t, s, era, nil)
}

func shown(res *mcp.CallToolResult) map[string]any {
	return map[string]any{"text": nativetest.Text(res), "structured": res.StructuredContent, "error": res.IsError}
}

func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

func ent(name, typ string, observations ...any) map[string]any {
	if observations == nil {
		observations = []any{}
	}
	return dict("name", name, "entityType", typ, "observations", observations)
}

func rel(from, to, typ string) map[string]any {
	return dict("from", from, "to", to, "relationType", typ)
}

type call struct {
	tool string
	args any
}

func list1(v ...any) []any {
	if v == nil {
		return []any{}
	}
	return v
}

func script() []call {
	read := call{"read_graph", dict()}
	return []call{
		read,
		{"create_entities", dict("entities", list1(
			ent("Ann", "person", "likes <tea> & \"cake\"", "likes <tea> & \"cake\"", "tab\tnewline\nbell\a\u2028\u007f\\/"),
			ent("Bo", "person"), ent("Straße", "ORT", "Ümlaut", "ΟΔΟΣ", "İstanbul", "𝄞"), ent("", "", "")))},
		// Known names are left out; two new ones of the same name are not.
		{"create_entities", dict("entities", list1(ent("Ann", "other", "x"), ent("Twin", "a", "1"), ent("Twin", "b", "2")))},
		{"create_entities", dict("entities", list1())},
		{"create_entities", dict("entities", list1(dict("name", "Extra", "entityType", "t", "observations", list1("o"), "unknown", 1, "Name", "no")), "more", true)},
		read,
		{"create_relations", dict("relations", list1(rel("Ann", "Bo", "knows"), rel("Ann", "Bo", "knows"), rel("Bo", "Ann", "knows"), rel("Nobody", "Ann", "is"), rel("Ann", "Ann", "is"), rel("", "", "")))},
		{"create_relations", dict("relations", list1(rel("Ann", "Bo", "knows"), rel("Ann", "Bo", "likes"), rel("Twin", "Straße", "in")))},
		{"add_observations", dict("observations", list1(
			dict("entityName", "Ann", "contents", list1("new", "new", "likes <tea> & \"cake\"")),
			dict("entityName", "Ann", "contents", list1("new", "newer")),
			dict("entityName", "Twin", "contents", list1("3")), dict("entityName", "Bo", "contents", list1())))},
		// One that is missing undoes the call.
		{"add_observations", dict("observations", list1(dict("entityName", "Bo", "contents", list1("lost")), dict("entityName", "No\nbody", "contents", list1("x"))))},
		read,
		{"open_nodes", dict("names", list1("Twin", "Bo", "Nobody", "Bo"))},
		{"open_nodes", dict("names", list1())},
		{"open_nodes", dict("names", list1("Nobody"))},
		{"search_nodes", dict("query", "PERSON")},
		{"search_nodes", dict("query", "")},
		{"search_nodes", dict("query", "ümlaut")},
		{"search_nodes", dict("query", "ΟΔΟΣ")},
		{"search_nodes", dict("query", "οδοσ")},
		{"search_nodes", dict("query", "οδος")},
		{"search_nodes", dict("query", "i\u0307stanbul")},
		{"search_nodes", dict("query", "istanbul")},
		{"search_nodes", dict("query", "STRASSE")},
		{"search_nodes", dict("query", "𝄞")},
		{"search_nodes", dict("query", "nothing has this")},
		{"delete_observations", dict("deletions", list1(
			dict("entityName", "Ann", "observations", list1("likes <tea> & \"cake\"", "not there")),
			dict("entityName", "Nobody", "observations", list1("x")), dict("entityName", "Twin", "observations", list1("2", "3"))))},
		read,
		{"delete_relations", dict("relations", list1(rel("Ann", "Bo", "knows"), rel("x", "y", "z")))},
		read,
		{"delete_entities", dict("entityNames", list1("Ann", "Twin", "not there"))},
		read,
		{"delete_entities", dict("entityNames", list1("Nobody"))},
		{"create_entities", dict("entities", list1(ent("Ann", "back", "again")))},
		read,
		{"delete_entities", dict("entityNames", list1("Ann", "Bo", "Straße", "", "Extra"))},
		read,
	}
}

func wrong() []call {
	return []call{
		{"create_entities", nil},
		{"create_entities", dict()},
		{"create_entities", dict("entities", nil)},
		{"create_entities", dict("entities", "x")},
		{"create_entities", dict("entities", list1(ent("a", "b"), 5, nil, list1(), dict("name", 1, "entityType", nil, "observations", list1("x", 2, true))))},
		{"create_entities", dict("entities", list1(dict("Name", "a", "entityType", "b", "observations", list1())))},
		{"create_relations", dict("relations", list1(dict("from", "a")))},
		{"add_observations", dict("observations", list1(dict("entityName", "a", "observations", list1("x"))))},
		{"delete_entities", dict("entityNames", list1(dict()))},
		{"delete_observations", dict("deletions", list1(dict("entityName", "a", "contents", list1("x"))))},
		{"delete_relations", dict("relations", dict())},
		{"search_nodes", dict("query", 1.5)},
		{"search_nodes", dict()},
		{"open_nodes", dict("names", "a")},
		{"read_graph", dict("x", 1)},
	}
}

// TestSameAsReference makes the same calls to the npm server.
func TestSameAsReference(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			cmd := testkit.NPM(t, "mcp-server-memory")
			cmd.Env = append(cmd.Environ(), "MEMORY_FILE_PATH="+filepath.Join(t.TempDir(), "memory.jsonl"))
			ref := nativetest.ConnectReference(t, cmd, nil)
			store, dir := state(t)
			cs := serve(t, open(t, store, dir), era, nil)
			nativetest.SameTools(t, cs, ref)
			for i, c := range append(script(), wrong()...) {
				got, want := nativetest.Call(t, cs, c.tool, c.args), nativetest.Call(t, ref, c.tool, c.args)
				nativetest.Same(t, strings.Join([]string{"call", string(rune('0' + i/10)), string(rune('0' + i%10)), c.tool}, " "), shown(got), shown(want))
			}
			nativetest.Same(t, "resource", contents(t, cs), contents(t, ref))
		})
	}
}

func contents(t *testing.T, cs *mcp.ClientSession) any {
	t.Helper()
	nativetest.Call(t, cs, "create_entities", dict("entities", list1(ent("a", "b", "c"))))
	res, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: resourceURI})
	if err != nil {
		t.Fatal(err)
	}
	resources, err := cs.ListResources(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var known []any
	for _, r := range resources.Resources {
		known = append(known, dict("uri", r.URI, "name", r.Name, "title", r.Title, "mime", r.MIMEType))
	}
	return dict("resources", known, "contents", res.Contents)
}
