package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

// hostDB makes a database file of the host.
func hostDB(t *testing.T, name, sql string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Exec(sql); err != nil {
		t.Fatal(err)
	}
	return path
}

const someRows = "CREATE TABLE t(a, b); WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < 1000) INSERT INTO t SELECT i, hex(zeroblob(200)) FROM n;"

func TestImportFile(t *testing.T) {
	for _, prepare := range []string{"", "PRAGMA page_size=512;", "PRAGMA page_size=65536;", "PRAGMA journal_mode=WAL;", "PRAGMA encoding='UTF-16le';", "PRAGMA auto_vacuum=FULL;"} {
		t.Run(prepare, func(t *testing.T) {
			path := hostDB(t, "x.db", prepare+someRows)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			h := newDB(t)
			var last, total int64
			if err := Import(t.Context(), h, path, func(d, n int64) { last, total = d, n }); err != nil {
				t.Fatal(err)
			}
			if last != total || total != int64(len(before)) {
				t.Errorf("progress %d of %d", last, total)
			}
			c := serve(t, h, nil, nil, nativetest.Modern)
			c.want(`{"n":1000,"l":400000}`, "SELECT count(*) AS n, sum(length(b)) AS l FROM t")
			c.exec("DELETE FROM t WHERE a > 500; INSERT INTO t VALUES ('é', 1)")
			c.exec("CREATE INDEX i ON t(a)")
			c.want(`{"n":501}`, "SELECT count(*) AS n FROM t")
			c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
			c.exec("VACUUM")
			c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
			after, err := os.ReadFile(path)
			if err != nil || string(after) != string(before) {
				t.Errorf("the file has changed: %v", err)
			}
		})
	}
}

func TestImportEmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := newDB(t)
	if err := Import(t.Context(), h, path, nil); err != nil {
		t.Fatal(err)
	}
	serve(t, h, nil, nil, nativetest.Modern).exec("CREATE TABLE t(a)")
}

func TestImportRefuses(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	beside := func(ending string) string {
		path := hostDB(t, "x.db", someRows)
		if err := os.WriteFile(path+ending, []byte("something"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	damaged := func(change func(b []byte) []byte) string {
		b, err := os.ReadFile(hostDB(t, "x.db", someRows))
		if err != nil {
			t.Fatal(err)
		}
		return write("y.db", string(change(b)))
	}
	for _, tt := range []struct{ name, path, err string }{
		{"missing", "/nonexistent/x.db", "no such file"},
		{"directory", t.TempDir(), "is not a file"},
		{"text", write("x.db", strings.Repeat("hello ", 100)), "not a SQLite database"},
		{"short", write("x.db", "SQLite format 3\x00"), "not a SQLite database"},
		{"wal", beside("-wal"), "write-ahead log"},
		{"journal", beside("-journal"), "transaction that did not end"},
		{"cut", damaged(func(b []byte) []byte { return b[:len(b)/2] }), "it is damaged"},
		{"page size", damaged(func(b []byte) []byte { b[17] = 7; return b }), "page size"},
		{"schema", damaged(func(b []byte) []byte { copy(b[100:], strings.Repeat("\xff", 3000)); return b }), "can't be read as a database"},
		{"bad script", write("x.sql", "CREATE TABLE t(a); INSERT INTO nope VALUES (1);"), "no such table"},
		{"escaping script", write("x.sql", "ATTACH '/tmp/x.db' AS x;"), "ATTACH is not possible"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newDB(t)
			err := Import(t.Context(), h, tt.path, nil)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("err = %v, want %q", err, tt.err)
			}
			if h.Value().Size() != 0 {
				t.Error("something was imported")
			}
		})
	}
}

func TestImportScript(t *testing.T) {
	var sql strings.Builder
	sql.WriteString("PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE child(p REFERENCES parent(id));\nINSERT INTO child VALUES(1);\nCREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT);\n")
	for i := range 3000 {
		fmt.Fprintf(&sql, "INSERT INTO parent VALUES(%d,'it''s; %d');\n", i, i)
	}
	sql.WriteString("CREATE TRIGGER t AFTER DELETE ON parent BEGIN DELETE FROM child WHERE p = old.id; SELECT 1; END;\nCOMMIT;\n")
	path := filepath.Join(t.TempDir(), "dump.SQL")
	if err := os.WriteFile(path, []byte(sql.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newDB(t)
	if err := Import(t.Context(), h, path, nil); err != nil {
		t.Fatal(err)
	}
	c := serve(t, h, nil, nil, nativetest.Modern)
	c.want(`{"n":3000,"m":1}`, "SELECT count(*) AS n, (SELECT count(*) FROM child) AS m FROM parent")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range []string{path, hostDB(t, "x.db", someRows)} {
		h := newDB(t)
		if err := Import(cancelled, h, p, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if h.Value().Size() != 0 {
			t.Error("something was imported")
		}
	}
}

func TestImportOfWhatChanges(t *testing.T) {
	path := hostDB(t, "x.db", someRows)
	h := newDB(t)
	err := Import(t.Context(), h, path, func(done, total int64) {
		if done != total {
			return
		}
		c, err := sqlite3.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if err := c.Exec("DELETE FROM t"); err != nil {
			t.Error(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "changed while it was copied") {
		t.Errorf("err = %v", err)
	}
	if h.Value().Size() != 0 {
		t.Error("something was imported")
	}
}
