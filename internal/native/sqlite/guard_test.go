package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestEscapes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("TMPDIR", dir)
	host := filepath.ToSlash(filepath.Join(dir, "host.db"))
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	c.exec("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
	for _, tool := range []string{"execute", "query"} {
		for _, sql := range []string{
			"ATTACH '" + host + "' AS x",
			"ATTACH 'file:" + host + "?vfs=os' AS x",
			"ATTACH '' AS x",
			"ATTACH ':memory:' AS x",
			"DETACH main",
			"SELECT 1; ATTACH '" + host + "' AS x",
			"VACUUM INTO '" + host + "'",
			"vacuum main into 'file:" + host + "?vfs=os'",
			"SELECT load_extension('x')",
			"SELECT readfile('/etc/passwd')",
			"SELECT writefile('" + host + "', 'x')",
			"SELECT edit('x')",
			"SELECT * FROM fsdir('/')",
			"CREATE VIRTUAL TABLE v USING csv(filename='/etc/passwd')",
			"CREATE VIRTUAL TABLE v USING nothing()",
			"PRAGMA journal_mode = WAL",
			"PRAGMA journal_mode(OFF)",
			"PRAGMA main.journal_mode = MEMORY",
			"PRAGMA locking_mode = EXCLUSIVE",
			"PRAGMA synchronous = OFF",
			"PRAGMA temp_store = MEMORY",
			"PRAGMA temp_store_directory = '/tmp'",
			"PRAGMA data_store_directory = '/tmp'",
			"PRAGMA mmap_size = 1000000",
			"PRAGMA cache_size = 1000000000",
			"PRAGMA cache_spill = OFF",
			"PRAGMA max_page_count = 1000000000",
			"PRAGMA page_size = 65536",
			"PRAGMA hard_heap_limit = 0",
			"PRAGMA soft_heap_limit = 0",
			"PRAGMA writable_schema = ON",
			"PRAGMA trusted_schema = ON",
			"PRAGMA schema_version = 7",
			"PRAGMA wal_checkpoint",
			"PRAGMA checksum_verification = 0",
			"PRAGMA query_only = 1",
			"PRAGMA auto_vacuum = 1",
			"SELECT * FROM pragma_journal_mode('wal')",
			"SELECT * FROM pragma_writable_schema",
			"UPDATE sqlite_schema SET sql = 'x'",
			"INSERT INTO sqlite_master VALUES('table','x','x',0,'x')",
			"DROP TABLE sqlite_schema",
			"EXPLAIN ATTACH '" + host + "' AS x",
		} {
			res := nativetest.Call(t, c.cs, tool, args{"sql": sql})
			if !res.IsError {
				t.Errorf("%s lets through %s: %s", tool, sql, nativetest.Text(res))
			}
		}
	}
	c.want(`{"a":1}`, "SELECT * FROM t")
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("the host has new files: %v %v", left, err)
	}
}

func TestQueryOnlyReads(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	c.exec("CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES (1)")
	for _, sql := range []string{
		"INSERT INTO t VALUES (2)", "UPDATE t SET a = 2", "DELETE FROM t", "DROP TABLE t", "CREATE TABLE u(a)", "CREATE TEMP TABLE u(a)",
		"CREATE INDEX i ON t(a)", "CREATE VIEW v AS SELECT 1", "ALTER TABLE t ADD COLUMN b", "REINDEX", "ANALYZE", "VACUUM", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT x",
		"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "INSERT INTO t VALUES (2) RETURNING a", "REPLACE INTO t VALUES(1)",
		"PRAGMA user_version = 3", "PRAGMA foreign_keys = OFF", "PRAGMA optimize", "PRAGMA incremental_vacuum(1)", "PRAGMA case_sensitive_like = 1",
	} {
		if res := nativetest.Call(t, c.cs, "query", args{"sql": sql}); !res.IsError {
			t.Errorf("query takes %s", sql)
		}
		if sql != "VACUUM" {
			if res := nativetest.Call(t, c.cs, "export_csv", args{"sql": sql}); !res.IsError {
				t.Errorf("export_csv takes %s", sql)
			}
		}
	}
	c.want(`{"a":1}`, "SELECT * FROM t")
	for _, sql := range []string{"PRAGMA table_info(t)", "PRAGMA user_version", "PRAGMA integrity_check", "EXPLAIN SELECT * FROM t", "EXPLAIN QUERY PLAN SELECT 1",
		"VALUES (1)", "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<5) SELECT * FROM n", "SELECT * FROM pragma_table_info('t')", "SELECT * FROM json_each('[1,2]')", "PRAGMA database_list"} {
		c.rows(sql)
	}
	if got := c.rows("PRAGMA database_list"); strings.Contains(got, "/tmp") {
		t.Errorf("a path of the host: %s", got)
	}
}

func TestReadOnlySetting(t *testing.T) {
	h := newDB(t)
	rw := serve(t, h, nil, nil, nativetest.Modern)
	rw.exec("CREATE TABLE t(a)")
	c := serve(t, h, args{"readonly": true}, nil, nativetest.Modern)
	list, err := c.cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if got := strings.Join(names, " "); got != "query list_tables describe_table export_csv" {
		t.Errorf("tools: %s", got)
	}
	c.want("", "SELECT * FROM t")
}

func TestSettings(t *testing.T) {
	h := newDB(t)
	for _, bad := range []args{{"timeout": "0s"}, {"max_rows": 0}, {"max_rows": 1e9}, {"max_size": 1}, {"max_size": "big"}, {"path": "x"}, {"timeout": "soon"}} {
		if _, _, err := New(bad, h, nil); err == nil || !strings.Contains(err.Error(), "settings.") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestToolHints(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	list, err := c.cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		a := tool.Annotations
		reads := tool.Name != "execute" && tool.Name != "import_csv"
		if a == nil || a.ReadOnlyHint != reads || *a.DestructiveHint != (tool.Name == "execute") || *a.OpenWorldHint || tool.OutputSchema == nil || tool.Description == "" {
			t.Errorf("%s: %+v", tool.Name, a)
		}
	}
}
