package sqlite

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestOneCallIsOneTransaction(t *testing.T) {
	h := newDB(t)
	c := serve(t, h, nil, nil, nativetest.Modern)
	c.exec("CREATE TABLE t(a UNIQUE)")
	before := h.Value()
	c.fails("statement 2: ", "execute", args{"sql": "INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)"})
	c.fails("nothing of this call was kept", "execute", args{"sql": "INSERT INTO t VALUES (1); SELEC"})
	c.fails("are not used", "execute", args{"sql": "INSERT INTO t VALUES (1)", "params": []any{1}})
	c.fails("UNIQUE", "execute", args{"sql": "INSERT INTO t VALUES (5),(6),(5)"})
	c.fails("UNIQUE", "execute", args{"sql": "INSERT INTO t VALUES (5); INSERT OR ROLLBACK INTO t VALUES (5)"})
	c.fails("BEGIN without COMMIT", "execute", args{"sql": "BEGIN; INSERT INTO t VALUES (1)"})
	c.fails("COMMIT without BEGIN", "execute", args{"sql": "INSERT INTO t VALUES (1); COMMIT"})
	c.fails("use SAVEPOINT", "execute", args{"sql": "BEGIN; INSERT INTO t VALUES (1); BEGIN; COMMIT"})
	c.fails("rolled back when a statement fails", "execute", args{"sql": "BEGIN; INSERT INTO t VALUES (1); ROLLBACK"})
	c.fails("alone", "execute", args{"sql": "INSERT INTO t VALUES (1); VACUUM"})
	c.fails("alone", "execute", args{"sql": "VACUUM; INSERT INTO t VALUES (1)"})
	c.want("", "SELECT * FROM t")
	if h.Value() != before {
		t.Error("what failed has written something")
	}
	c.exec("SELECT * FROM t")
	if h.Value() != before {
		t.Error("what only reads has written something")
	}
	c.exec("BEGIN IMMEDIATE; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (2); ROLLBACK TO s; RELEASE s; COMMIT TRANSACTION;")
	c.exec("BEGIN; INSERT INTO t VALUES (3); END; BEGIN; INSERT INTO t VALUES (4); COMMIT")
	c.want("{\"a\":1},\n{\"a\":3},\n{\"a\":4}", "SELECT * FROM t ORDER BY a")
	if got := c.exec("CREATE TABLE p(id INTEGER PRIMARY KEY, a); CREATE TABLE q(p); INSERT INTO p VALUES (7, 1); INSERT INTO q VALUES (last_insert_rowid()); SELECT p FROM q"); !strings.Contains(got, `"rows":[{"p":7}]`) {
		t.Errorf("last_insert_rowid: %s", got)
	}
}

func TestNothingTemporaryLasts(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	if got := c.exec("CREATE TEMP TABLE x(a); INSERT INTO x VALUES (1); CREATE TABLE t AS SELECT a + 1 AS b FROM x; SELECT b FROM t"); !strings.Contains(got, `"rows":[{"b":2}]`) {
		t.Errorf("in one call: %s", got)
	}
	c.fails("no such table: x", "query", args{"sql": "SELECT * FROM x"})
	c.exec("CREATE TABLE a(id INTEGER PRIMARY KEY); CREATE TABLE b(a REFERENCES a(id))")
	c.fails("FOREIGN KEY", "execute", args{"sql": "INSERT INTO b VALUES (1)"})
	c.fails("before all other statements", "execute", args{"sql": "SELECT 1; PRAGMA foreign_keys = OFF"})
	c.exec("PRAGMA foreign_keys = OFF; INSERT INTO b VALUES (1)")
	c.fails("FOREIGN KEY", "execute", args{"sql": "INSERT INTO b VALUES (2)"})
	c.want(`{"a":1}`, "SELECT * FROM b")
	c.want(`{"n":1}`, "SELECT 'A' LIKE 'a' AS n")
	c.exec("PRAGMA case_sensitive_like = ON")
	c.want(`{"n":1}`, "SELECT 'A' LIKE 'a' AS n")
	c.exec("PRAGMA user_version = 42; PRAGMA application_id = 7")
	c.want(`{"user_version":42}`, "PRAGMA user_version")
}

// TestLargeTransactions goes beyond SQLite's cache and what a scratch keeps in
// memory, forward, back and in part.
func TestLargeTransactions(t *testing.T) {
	h := newDB(t)
	c := serve(t, h, nil, nil, nativetest.Modern)
	const fill = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < 5000) INSERT INTO t SELECT i, hex(zeroblob(1000)) FROM n"
	c.exec("CREATE TABLE t(a INTEGER PRIMARY KEY, b); " + fill)
	c.want(`{"n":5000,"l":10000000}`, "SELECT count(*) AS n, sum(length(b)) AS l FROM t")
	before := h.Value()
	c.fails("no such table", "execute", args{"sql": "UPDATE t SET b = b || 'x'; DELETE FROM t WHERE a % 2; INSERT INTO nope VALUES (1)"})
	if h.Value() != before {
		t.Error("a large transaction that was rolled back has written something")
	}
	c.want(`{"n":5000,"l":10000000}`, "SELECT count(*) AS n, sum(length(b)) AS l FROM t")
	c.exec("UPDATE t SET b = b || 'x'; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; RELEASE s")
	c.want(`{"n":5000,"l":10005000}`, "SELECT count(*) AS n, sum(length(b)) AS l FROM t")
	c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
	// It sorts more than its memory.
	c.want(`{"a":5000}`, "SELECT a FROM (SELECT a, b FROM t ORDER BY b || (10000 - a) LIMIT 1)")

	c.exec("DELETE FROM t WHERE a > 10")
	large := h.Value().Size()
	c.exec("VACUUM")
	if small := h.Value().Size(); small >= large/10 {
		t.Errorf("VACUUM: %d bytes, before %d", small, large)
	}
	c.exec("INSERT INTO t SELECT a + 100, b FROM t")
	c.want(`{"n":20}`, "SELECT count(*) AS n FROM t")
	c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
}

func TestFullText(t *testing.T) {
	w := newWorld(t)
	w.create("a", layer.Ref{})
	c := serve(t, w.head("a"), nil, nil, nativetest.Modern)
	c.exec("CREATE VIRTUAL TABLE docs USING fts5(title, body); INSERT INTO docs VALUES ('Fork', 'a session that forks'), ('Rewind', 'a session goes back')")
	w.fork("a", "b")
	child := serve(t, w.head("b"), nil, nil, nativetest.Modern)
	child.want(`{"title":"Fork"}`, "SELECT title FROM docs WHERE docs MATCH 'fork* AND session' ORDER BY rank")
	child.exec("DELETE FROM docs WHERE title = 'Fork'; INSERT INTO docs(docs) VALUES ('optimize')")
	child.exec("VACUUM")
	child.want("", "SELECT title FROM docs WHERE docs MATCH 'forks'")
	c.want(`{"title":"Fork"}`, "SELECT title FROM docs WHERE docs MATCH 'forks'")
	if got := c.ok("list_tables", args{}); got != `{"tables":[{"name":"docs","type":"virtual"}]}` {
		t.Errorf("list: %s", got)
	}
	c.ok("describe_table", args{"table": "docs"})
	for _, sql := range []string{"DELETE FROM docs_data", "UPDATE docs_config SET v = 1"} {
		c.fails("may not be modified", "execute", args{"sql": sql})
	}
	c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
	c.exec("DROP TABLE docs")
}
