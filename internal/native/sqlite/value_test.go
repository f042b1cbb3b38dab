package sqlite

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestValues(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	for _, tt := range []struct{ sql, want string }{
		{"9223372036854775807", "9223372036854775807"},
		{"-9223372036854775808", "-9223372036854775808"},
		{"9007199254740993", "9007199254740993"},
		{"1.0", "1.0"},
		{"-0.0", "-0.0"},
		{"0.1", "0.1"},
		{"1e300", "1e+300"},
		{"1e-9", "1e-09"},
		{"123456789.0", "123456789.0"},
		{"9e999", `{"real":"Infinity"}`},
		{"-9e999", `{"real":"-Infinity"}`},
		{"NULL", "null"},
		{"''", `""`},
		{"x''", `{"base64":""}`},
		{"x'00ff'", `{"base64":"AP8="}`},
		{"CAST(x'ff41' AS TEXT)", `{"text_base64":"/0E="}`},
		{"'a' || char(0) || 'b'", `"a\u0000b"`},
		{"'<é> & \"'", `"<é> & \""`},
		{"date('2024-02-29')", `"2024-02-29"`},
		{"json('{\"a\":1}')", `"{\"a\":1}"`},
		{"TRUE", "1"},
	} {
		c.want(`{"v":`+tt.want+`}`, "SELECT "+tt.sql+" AS v")
	}
	// A structured result is the same as the text.
	if got := c.ok("query", args{"sql": "SELECT 1 AS a, x'ff' AS b, 'x' AS a"}); got != `{"columns":["a","b","a:2"],"row_count":1,"rows":[{"a":1,"a:2":"x","b":{"base64":"/w=="}}]}` {
		t.Errorf("structured: %s", got)
	}
}

func TestParameters(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Legacy)
	c.want(`{"a":"integer","b":"real","c":"text","d":"blob","e":"null","f":1,"g":{"real":"-Infinity"},"h":{"text_base64":"/w=="}}`,
		"SELECT typeof(?) AS a, typeof(?) AS b, typeof(?) AS c, typeof(?) AS d, typeof(?) AS e, ? AS f, ? AS g, ? AS h",
		1, 1.5, "x", args{"base64": "AA=="}, nil, true, args{"real": "-Infinity"}, args{"text_base64": "/w=="})
	c.want(`{"a":2,"b":1}`, "SELECT ?2 AS a, ?1 AS b", 1, 2)
	if got := c.ok("query", args{"sql": "SELECT :a + @b + $c AS v", "params": args{"a": 1, ":b": 2, "c": 3}}); !strings.Contains(got, `"v":6`) {
		t.Errorf("named: %s", got)
	}
	if got := c.exec("CREATE TABLE t(a, b); INSERT INTO t VALUES(?, ?); INSERT INTO t VALUES(?, 9)", 1, 2, 3); !strings.Contains(got, `"rows_changed":2`) {
		t.Errorf("a list over statements: %s", got)
	}
	c.want("{\"a\":1,\"b\":2},\n{\"a\":3,\"b\":9}", "SELECT * FROM t")

	q := func(words, sql string, p any) {
		t.Helper()
		c.fails(words, "query", args{"sql": sql, "params": p})
	}
	q("2 parameters, and 1 values are left", "SELECT ?, ?", []any{1})
	q("are not used", "SELECT ?", []any{1, 2})
	q("no value for :b", "SELECT :a, :b", args{"a": 1})
	q("params.c is not used", "SELECT :a", args{"a": 1, "c": 1})
	q("has no name", "SELECT ?", args{"a": 1})
	q("params must be a list", "SELECT 1", "x")
	q("must be null", "SELECT ?", []any{[]any{}})
	q("not base64", "SELECT ?", []any{args{"base64": "*"}})
	q("unknown kind", "SELECT ?", []any{args{"hex": "00"}})
	q("not a real", "SELECT ?", []any{args{"real": "NaN"}})
	q("2 parameters, and 0", "SELECT ?, ?", nil)
	// Beyond what a client would send through a float.
	if err := (&params{}).UnmarshalJSON([]byte(`[9223372036854775808]`)); err == nil || !strings.Contains(err.Error(), "beyond 64 bits") {
		t.Errorf("a huge integer: %v", err)
	}
	var many []any
	for range 33000 {
		many = append(many, 1)
	}
	q("too many SQL variables", "SELECT ?"+strings.Repeat(",?", 32999), many)
}

func TestArguments(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	c.fails("no statement", "query", args{})
	c.fails("no statement", "query", args{"sql": " -- nothing\n"})
	c.fails("no statement", "execute", args{"sql": ";;"})
	c.fails(`"sql" must be a string`, "query", args{"sql": 7})
	c.fails("unknown field", "query", args{"sql": "SELECT 1", "extra": 1})
	c.fails("at least 1", "query", args{"sql": "SELECT 1", "limit": 0})
	c.fails("unknown field", "list_tables", args{"x": 1})
	c.fails("table is missing", "import_csv", args{"csv": "a"})
	c.fails("give the rows", "import_csv", args{"table": "t"})
	c.fails("no workspace", "import_csv", args{"table": "t", "path": "x.csv"})
	c.fails("no workspace", "export_csv", args{"sql": "SELECT 1", "path": "x.csv"})
	c.fails("give sql", "export_csv", args{})
	c.fails("give sql", "export_csv", args{"sql": "SELECT 1", "table": "t"})
	c.fails("there is no table", "export_csv", args{"table": "t"})
	c.fails(`near "SELEC": syntax error`, "query", args{"sql": "SELEC 1"})
	c.fails("no such table: t", "query", args{"sql": "SELECT * FROM t"})
	c.fails("one statement", "query", args{"sql": "SELECT 1; SELECT 2"})
	c.want(`{"1":1}`, "SELECT 1; -- and no more\n;")
}
