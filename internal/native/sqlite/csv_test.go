package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/workspace"
)

func TestImportCSV(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	in := func(table, csv string, more ...any) args {
		a := args{"table": table, "csv": csv}
		for i := 0; i < len(more); i += 2 {
			a[more[i].(string)] = more[i+1]
		}
		return a
	}
	c.ok("import_csv", in("types", "i,r,t,q,z,big,e,s\n1,1,01,\"1\",,9223372036854775808,1e5,x\n-2,2.5,2,2,,1,2,\"\"\n"))
	c.want(`{"sql":"CREATE TABLE \"types\" (\"i\" INTEGER, \"r\" REAL, \"t\" TEXT, \"q\" TEXT, \"z\" TEXT, \"big\" TEXT, \"e\" REAL, \"s\" TEXT)"}`, "SELECT sql FROM sqlite_schema")
	c.want("{\"i\":1,\"r\":1.0,\"t\":\"01\",\"q\":\"1\",\"z\":null,\"big\":\"9223372036854775808\",\"e\":100000.0,\"s\":\"x\"},\n"+
		`{"i":-2,"r":2.5,"t":"2","q":"2","z":null,"big":"1","e":2.0,"s":""}`, "SELECT * FROM types")

	c.ok("import_csv", in(`odd "name"; DROP TABLE types`, "a\"b,select\n1,2\n"))
	c.want(`{"a\"b":1,"select":2}`, `SELECT * FROM "odd ""name""; DROP TABLE types"`)
	c.ok("import_csv", in("plain", "1,2\n3,4\n", "header", false))
	c.want("{\"c1\":1,\"c2\":2},\n{\"c1\":3,\"c2\":4}", "SELECT * FROM plain")

	c.exec("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT NOT NULL, n INT DEFAULT 7, g AS (n + 1))")
	c.ok("import_csv", in("t", "NAME,id\nAnn,5\n"))
	c.want(`{"id":5,"name":"Ann","n":7,"g":8}`, "SELECT * FROM t")
	c.ok("import_csv", in("T", "6,Bob,1\n", "header", false))
	for _, tt := range []struct {
		words string
		a     args
	}{
		{"no column of table t; it has id, name, n", in("t", "nope\n1\n")},
		{"twice", in("t", "id,ID\n1,2\n")},
		{"twice", in("u", "a,A\n1,2\n")},
		{"line 3 has 1 fields, not 2", in("t", "id,name\n7,x\n8\n")},
		{"line 4: ", in("t", "id,name\n\n7,x\n5,y\n")},
		{"NOT NULL", in("t", "id,name\n7,\n")},
		{"datatype mismatch", in("t", "id,name\nx,y\n")},
		{"has 1 columns and table t has 3", in("t", "1\n", "header", false)},
		{"empty", in("t", "\n")},
		{"not closed", in("t", "id,name\n1,\"x\n")},
		{"there is no table", in("none", "a\n1\n", "create", false)},
		{"can't be the name", in("sqlite_x", "a\n1\n")},
		{"can't be the name", in(" ", "a\n1\n")},
		{"may not be modified", in("sqlite_schema", "type\n1\n")},
		{"more than 2000 fields", in("w", strings.Repeat(",", 2000))},
	} {
		c.fails(tt.words, "import_csv", tt.a)
	}
	c.want(`{"n":2}`, "SELECT count(*) AS n FROM t")
	c.fails("no such table: u", "query", args{"sql": "SELECT * FROM u"})
}

func TestExportCSV(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Legacy)
	got := c.text("export_csv", args{"sql": `SELECT 1 AS a, 2.0 AS b, NULL AS c, '' AS "d,e", 'x"y' AS f, x'00ff' AS g, -9e999 AS h, ' s' AS i, char(10) AS j`})
	if want := "a,b,c,\"d,e\",f,g,h,i,j\n1,2.0,,\"\",\"x\"\"y\",x'00ff',-Infinity,\" s\",\"\n\"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// What is exported comes back the same.
	c.exec("CREATE TABLE t(a INTEGER, b REAL, c TEXT); INSERT INTO t VALUES (1, 0.1, NULL), (-9223372036854775808, 1e300, ''), (NULL, NULL, 'a' || char(13) || ',\"' || char(10)), (2, 2.0, '007')")
	c.ok("import_csv", args{"table": "u", "csv": c.text("export_csv", args{"table": "t"})})
	c.want("", "SELECT * FROM t EXCEPT SELECT * FROM u")
	c.want(`{"n":4}`, "SELECT count(*) AS n FROM u")
}

func TestCSVFiles(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	files, err := workspace.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, newDB(t), nil, files, nativetest.Modern)
	if err := os.WriteFile(filepath.Join(dir, "in.csv"), []byte("a,b\n1,2\n3,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret.csv"), []byte("a\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.ok("import_csv", args{"table": "t", "path": "in.csv"})
	c.ok("import_csv", args{"table": "t", "path": files.Root() + "/in.csv"})
	if got := c.ok("export_csv", args{"sql": "SELECT DISTINCT * FROM t", "path": "out.csv"}); got != `{"bytes":12,"path":"out.csv","row_count":2}` {
		t.Errorf("export: %s", got)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "out.csv")); err != nil || string(got) != "a,b\n1,2\n3,4\n" {
		t.Errorf("file: %q %v", got, err)
	}
	// More than a text answer may have.
	c.exec("WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < 3000) INSERT INTO t SELECT i, 'x' || hex(zeroblob(500)) FROM n")
	if got := c.ok("export_csv", args{"table": "t", "path": "big.csv"}); !strings.Contains(got, `"row_count":3004`) {
		t.Errorf("export: %s", got)
	}
	if info, err := os.Stat(filepath.Join(dir, "big.csv")); err != nil || info.Size() < 3000*1000 {
		t.Errorf("big.csv: %v %v", info, err)
	}
	for _, path := range []string{"../secret.csv", "/etc/passwd", filepath.Join(outside, "secret.csv"), "nope/../../x.csv", "nope.csv", ".", "a\x00b"} {
		if res := nativetest.Call(t, c.cs, "import_csv", args{"table": "x", "path": path}); !res.IsError {
			t.Errorf("import of %q: %s", path, nativetest.Text(res))
		}
		if path == "nope.csv" {
			continue
		}
		if res := nativetest.Call(t, c.cs, "export_csv", args{"table": "t", "path": path}); !res.IsError {
			t.Errorf("export to %q: %s", path, nativetest.Text(res))
		}
	}
	c.fails("give the rows", "import_csv", args{"table": "x", "path": "in.csv", "csv": "a"})
}
