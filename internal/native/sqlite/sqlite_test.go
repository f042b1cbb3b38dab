package sqlite

import (
	"encoding/json"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/workspace"
)

func TestMain(m *testing.M) {
	if childMain() {
		return
	}
	goleak.VerifyTestMain(m)
}

// world is a store of layers with states in it.
type world struct {
	t     testing.TB
	dir   string
	store *layer.Store
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.openStore()
	t.Cleanup(func() { w.store.Close() })
	return w
}

func (w *world) openStore() {
	w.t.Helper()
	s, err := layer.OpenStore(layer.Options{Dir: filepath.Join(w.dir, "layers"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = s
}

func (w *world) state(name string) string { return filepath.Join(w.dir, name) }

func (w *world) create(name string, from layer.Ref) {
	w.t.Helper()
	if err := w.store.Create(w.state(name), from); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) head(name string) *layer.Head[*DB] {
	w.t.Helper()
	h, err := layer.Open(w.store, w.state(name), Machine())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { h.Close() })
	return h
}

// fork seals one state and begins another there.
func (w *world) fork(from, to string) {
	w.t.Helper()
	ref, err := w.store.Seal(w.state(from))
	if err != nil {
		w.t.Fatal(err)
	}
	w.create(to, ref)
	if err := w.store.Release(ref); err != nil {
		w.t.Fatal(err)
	}
}

func newDB(t testing.TB) *layer.Head[*DB] {
	t.Helper()
	w := newWorld(t)
	w.create("a", layer.Ref{})
	return w.head("a")
}

type client struct {
	t  testing.TB
	cs *mcp.ClientSession
}

func serve(t testing.TB, h *layer.Head[*DB], set map[string]any, files workspace.FS, era string) client {
	t.Helper()
	srv, closer, err := New(set, h, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeOf(t, closer) })
	return client{t, nativetest.Connect(t, srv, era, nil)}
}

func closeOf(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

type args = map[string]any

// ok calls a tool that must succeed, and returns its structured content.
func (c client) ok(tool string, a args) string {
	c.t.Helper()
	res := nativetest.Call(c.t, c.cs, tool, a)
	if res.IsError {
		c.t.Fatalf("%s %v: %s", tool, a, nativetest.Text(res))
	}
	data, err := json.Marshal(res.StructuredContent)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// text is ok for the text of the answer, which keeps the order of keys and every
// digit.
func (c client) text(tool string, a args) string {
	c.t.Helper()
	res := nativetest.Call(c.t, c.cs, tool, a)
	if res.IsError {
		c.t.Fatalf("%s %v: %s", tool, a, nativetest.Text(res))
	}
	return nativetest.Text(res)
}

// fails calls a tool that must fail with words in its error.
func (c client) fails(words, tool string, a args) {
	c.t.Helper()
	res := nativetest.Call(c.t, c.cs, tool, a)
	if !res.IsError {
		c.t.Errorf("%s %.200v is accepted: %.200s", tool, a, nativetest.Text(res))
	} else if text := nativetest.Text(res); !strings.Contains(text, words) {
		c.t.Errorf("%s %.200v: %q, want %q in it", tool, a, text, words)
	}
}

func (c client) exec(sql string, params ...any) string {
	c.t.Helper()
	a := args{"sql": sql}
	if params != nil {
		a["params"] = params
	}
	return c.ok("execute", a)
}

// rows returns the rows of a query, one object a line.
func (c client) rows(sql string, params ...any) string {
	c.t.Helper()
	a := args{"sql": sql}
	if params != nil {
		a["params"] = params
	}
	text := c.text("query", a)
	_, text, _ = strings.Cut(text, `"rows":[`)
	text, _, _ = strings.Cut(text, `],"row_count":`)
	return strings.TrimSpace(text)
}

func (c client) want(rows, sql string, params ...any) {
	c.t.Helper()
	if got := c.rows(sql, params...); got != rows {
		c.t.Errorf("%s:\n got %s\nwant %s", sql, got, rows)
	}
}

func TestEveryTool(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			c := serve(t, newDB(t), nil, nil, era)
			c.want("", "SELECT * FROM sqlite_schema")
			if got := c.ok("list_tables", args{}); got != `{"tables":[]}` {
				t.Errorf("empty list: %s", got)
			}
			got := c.exec(`CREATE TABLE dept(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
				CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT DEFAULT 'x', dept INT REFERENCES dept(id) ON DELETE CASCADE, pay REAL);
				CREATE INDEX by_dept ON emp(dept, lower(name)) WHERE pay > 0;
				CREATE VIEW rich AS SELECT name FROM emp WHERE pay > 10;
				CREATE TRIGGER t1 AFTER INSERT ON emp BEGIN UPDATE emp SET name = name; SELECT 1; END;
				INSERT INTO dept(name) VALUES ('a'), ('b')`)
			if got != `{"last_insert_id":2,"rows_changed":2,"statements":6}` {
				t.Errorf("execute: %s", got)
			}
			if got := c.exec("INSERT INTO emp(name, dept, pay) VALUES (?, ?, ?), ('it''s; fine', 2, 3) RETURNING id, name", "Ann", 1, 12.5); !strings.Contains(got, `"rows":[{"id":1,"name":"Ann"},{"id":2,"name":"it's; fine"}]`) {
				t.Errorf("returning: %s", got)
			}
			c.want(`{"id":1,"name":"Ann","dept":1,"pay":12.5}`, "SELECT * FROM emp WHERE name = :who", "Ann")
			if got := c.ok("list_tables", args{}); got != `{"tables":[{"name":"dept","type":"table"},{"name":"emp","type":"table"},{"name":"rich","type":"view"}]}` {
				t.Errorf("list: %s", got)
			}
			got = c.ok("describe_table", args{"table": "EMP"})
			for _, want := range []string{`"name":"emp"`, `"primary_key":["id"]`, `"table":"dept"`, `"on_delete":"CASCADE"`, `"to":["id"]`, `"columns":["dept",null]`, `"partial":true`, `"row_count":2`, `"triggers":["t1"]`, `"default":"'x'"`} {
				if !strings.Contains(got, want) {
					t.Errorf("describe has no %s: %s", want, got)
				}
			}
			c.fails(`there is no table "nope"; there are dept, emp, rich`, "describe_table", args{"table": "nope"})
			if got := c.ok("import_csv", args{"table": "new", "csv": "a,b,c\n1,2.5,007\n2,,x\n"}); got != `{"columns":["a","b","c"],"created":true,"rows_imported":2,"table":"new"}` {
				t.Errorf("import: %s", got)
			}
			c.want(`{"a":1,"b":2.5,"c":"007","t":"integer"},`+"\n"+`{"a":2,"b":null,"c":"x","t":"integer"}`, "SELECT *, typeof(a) AS t FROM new")
			if got := c.text("export_csv", args{"table": "new"}); got != "a,b,c\n1,2.5,007\n2,,x\n" {
				t.Errorf("export: %q", got)
			}
		})
	}
}
