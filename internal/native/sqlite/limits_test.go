package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

const endless = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n) "

func TestRowsAndBytes(t *testing.T) {
	c := serve(t, newDB(t), args{"max_rows": 10, "timeout": "5m"}, nil, nativetest.Modern)
	hundred := "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < 100) "
	ends := func(suffix, sql string, limit int) {
		t.Helper()
		a := args{"sql": sql}
		if limit > 0 {
			a["limit"] = limit
		}
		if got := c.text("query", a); !strings.HasSuffix(got, suffix) {
			t.Errorf("%s: ends with %s, want %s", sql, got[max(0, len(got)-100):], suffix)
		}
	}
	ends(`"row_count":10,"left_out":90}`, hundred+"SELECT i FROM n", 0)
	ends(`"row_count":3,"left_out":97}`, hundred+"SELECT i FROM n", 3)
	ends(`"row_count":10,"left_out":90}`, hundred+"SELECT i FROM n", 50)
	ends(`"row_count":10}`, hundred+"SELECT i FROM n LIMIT 10", 0)
	ends(`"row_count":2,"left_out":98}`, hundred+"SELECT hex(zeroblob(200000)) FROM n", 0)
	// Counting does not go on for ever.
	ends(`"row_count":10,"left_out":100000,"left_out_at_least":true}`, endless+"SELECT i FROM n", 0)
	c.fails("the first row alone", "query", args{"sql": "SELECT hex(zeroblob(1000000))"})
	if got := c.ok("export_csv", args{"sql": hundred + "SELECT i FROM n"}); !strings.Contains(got, `"left_out":90,"row_count":10`) {
		t.Errorf("export: %s", got)
	}
	if got := c.exec("CREATE TABLE t(a); " + hundred + "INSERT INTO t SELECT i FROM n RETURNING a"); !strings.Contains(got, `"left_out":90,"row_count":10`) || !strings.Contains(got, `"rows_changed":100`) {
		t.Errorf("returning: %s", got)
	}
	c.want(`{"n":100}`, "SELECT count(*) AS n FROM t")
}

func TestTimeout(t *testing.T) {
	h := newDB(t)
	c := serve(t, h, args{"timeout": "100ms"}, nil, nativetest.Modern)
	c.exec("CREATE TABLE t(a)")
	before := h.Value()
	for _, sql := range []string{
		endless + "SELECT count(*) FROM n",
		endless + "INSERT INTO t SELECT i FROM n",
		endless + "SELECT * FROM n WHERE i < 0",
		"CREATE TABLE u(a); " + endless + "SELECT sum(i) FROM n",
	} {
		c.fails("took longer than 100ms", "execute", args{"sql": sql})
	}
	c.fails("took longer than 100ms", "query", args{"sql": endless + "SELECT count(*) FROM n"})
	if h.Value() != before {
		t.Error("what was stopped has changed something")
	}
	c.exec("INSERT INTO t VALUES (1)")
	c.want(`{"a":1}`, "SELECT * FROM t")
}

func TestCancel(t *testing.T) {
	h := newDB(t)
	e := newEngine(h, limits{timeout: time.Hour, maxRows: 10, maxSize: 1 << 30})
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	done := make(chan error)
	go func() {
		done <- e.call(ctx, func(ctx context.Context, c *conn) error {
			close(running)
			_, err := c.execute(ctx, strings.NewReader("CREATE TABLE t(a); "+endless+"INSERT INTO t SELECT i FROM n"), nil, 10)
			return err
		})
	}()
	<-running
	// A call that waits for its turn can be cancelled, too.
	waiting, giveUp := context.WithCancel(t.Context())
	go func() {
		done <- e.call(waiting, func(context.Context, *conn) error { return errors.New("it got the turn") })
	}()
	giveUp()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("running: %v", err)
	}
	if h.Value().Size() != 0 {
		t.Error("what was cancelled has written something")
	}
}

// TestCloseStopsCalls: the running call and those that wait for it.
func TestCloseStopsCalls(t *testing.T) {
	h := newDB(t)
	e := newEngine(h, limits{timeout: time.Hour, maxRows: 10, maxSize: 1 << 30})
	running := make(chan struct{}, 3)
	done := make(chan error)
	for range 3 {
		go func() {
			done <- e.call(t.Context(), func(ctx context.Context, c *conn) error {
				running <- struct{}{}
				_, err := c.execute(ctx, strings.NewReader("CREATE TABLE t(a); "+endless+"INSERT INTO t SELECT i FROM n"), nil, 10)
				return err
			})
		}()
	}
	<-running
	closed := make(chan error)
	go func() { closed <- e.Close() }()
	for range 3 {
		if err := <-done; !errors.Is(err, fs.ErrClosed) {
			t.Errorf("err = %v", err)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if h.Value().Size() != 0 {
		t.Error("what was stopped has written something")
	}
}

// TestCancelledCall cancels through the protocol.
func TestCancelledCall(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Legacy)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.cs.CallTool(ctx, &mcp.CallToolParams{Name: "query", Arguments: args{"sql": endless + "SELECT count(*) FROM n"}}); err == nil {
		t.Error("an endless call has ended")
	}
	c.want(`{"1":1}`, "SELECT 1") // the turn is free
}

func TestMemoryAndSize(t *testing.T) {
	h := newDB(t)
	c := serve(t, h, args{"max_size": 1 << 20, "timeout": "1m"}, nil, nativetest.Modern)
	c.exec("CREATE TABLE t(a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES (0, 'kept')")
	for i, tt := range []struct{ words, sql string }{
		{"larger than", "SELECT zeroblob(1000000000)"},
		{"larger than", "SELECT randomblob(2000000000)"},
		{"larger than", "SELECT hex(zeroblob(16000000))"},
		{"larger than", "SELECT replace(hex(zeroblob(4000000)), '0', hex(zeroblob(4000000)))"},
		{"larger than", "SELECT printf('%.*c', 100000000, 'x')"},
		{"larger than", "SELECT group_concat(hex(zeroblob(1000000))) FROM (VALUES(1),(2),(3),(4),(5),(6),(7),(8),(9),(10))"},
		{"more memory", "WITH RECURSIVE n(i, s) AS (VALUES(1, zeroblob(8000000)) UNION ALL SELECT i+1, zeroblob(8000000+i) FROM n WHERE i < 30) SELECT json_group_array(hex(substr(s, 1, 2000000))) FROM n"},
		{"settings.max_size", endless + "INSERT INTO t(b) SELECT hex(zeroblob(500)) FROM n"},
		{"settings.max_size", "INSERT INTO t(b) VALUES (zeroblob(2000000))"},
		{"too many levels", "PRAGMA recursive_triggers = ON; CREATE TRIGGER r AFTER INSERT ON t BEGIN INSERT INTO t(b) VALUES (1); END; INSERT INTO t(b) VALUES (1)"},
		{"too complex", "SELECT 1 WHERE 'x' LIKE '" + strings.Repeat("%a", 600) + "'"},
		{"Recursion limit", "SELECT " + strings.Repeat("(1+", 2000) + "1" + strings.Repeat(")", 2000)},
		{"too many", "SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 1000)},
	} {
		if underRace && i%3 != 0 {
			continue
		}
		c.fails(tt.words, "execute", args{"sql": tt.sql})
		c.want(`{"b":"kept"}`, "SELECT b FROM t")
	}
	// Functions that would take hours.
	c.want(`{"i":0,"r":2000000,"t":0}`, `SELECT instr(hex(zeroblob(1000000)), hex(zeroblob(500000)) || 'x') AS i,
		length(replace(hex(zeroblob(1000000)), hex(zeroblob(500000)) || 'x', '')) AS r, length(trim(hex(zeroblob(1000000)), hex(zeroblob(1000000)))) AS t`)
	if size := h.Value().Size(); size > 1<<20 {
		t.Errorf("the database has %d bytes", size)
	}
	c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
}

func TestFunctionsAreSQLites(t *testing.T) {
	c := serve(t, newDB(t), nil, nil, nativetest.Modern)
	c.want(`{"a":3,"b":0,"c":1,"d":null,"e":2,"f":2,"g":1}`, "SELECT instr('añb', 'b') a, instr('a', 'b') b, instr('a', '') c, instr(NULL, 'a') d, instr(x'0102', x'02') e, instr(12, 2) f, instr('', '') g")
	c.want(`{"a":"xbx","b":"aba","c":null,"d":"b","e":"1x3"}`, "SELECT replace('aba', 'a', 'x') a, replace('aba', '', 'x') b, replace('a', NULL, 'x') c, replace('aba', 'a', '') d, replace(123, 2, 'x') e")
	c.want(`{"a":"a b","b":"a ","c":" a","d":"b","e":"\ta","f":"","g":null,"h":"é"}`, "SELECT trim('  a b ') a, ltrim(' a ') b, rtrim(' a ') c, trim('xbyx', 'xy') d, trim(char(9) || 'a') e, trim('xx', 'x') f, trim('a', NULL) g, trim('ñéñ', 'ñ') h")
}
