package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestForksOfForks(t *testing.T) {
	w := newWorld(t)
	w.create("0", layer.Ref{})
	clients := []client{serve(t, w.head("0"), nil, nil, nativetest.Modern)}
	clients[0].exec("CREATE TABLE t(a); INSERT INTO t VALUES ('root')")
	for i := 1; i <= 20; i++ {
		w.fork(fmt.Sprint(i-1), fmt.Sprint(i))
		c := serve(t, w.head(fmt.Sprint(i)), nil, nil, nativetest.Modern)
		clients = append(clients, c)
		// The parent goes on with its connection, and the child with its own.
		clients[i-1].exec("INSERT INTO t VALUES (?)", fmt.Sprintf("after %d", i))
		c.exec("INSERT INTO t VALUES (?)", fmt.Sprintf("in %d", i))
	}
	for i, c := range clients {
		want := []string{"root"}
		for n := 1; n <= i; n++ {
			want = append(want, fmt.Sprintf("in %d", n))
		}
		if i < len(clients)-1 {
			want = append(want, fmt.Sprintf("after %d", i+1))
		}
		c.want(fmt.Sprintf(`{"v":%q}`, strings.Join(want, ",")), "SELECT group_concat(a) AS v FROM (SELECT a FROM t ORDER BY rowid)")
	}
	// A sibling of what has changed since begins where it was sealed.
	ref, err := w.store.Seal(w.state("3"))
	if err != nil {
		t.Fatal(err)
	}
	clients[3].exec("DROP TABLE t")
	w.create("s", ref)
	serve(t, w.head("s"), nil, nil, nativetest.Modern).want(`{"n":5}`, "SELECT count(*) AS n FROM t")
	clients[4].want(`{"n":6}`, "SELECT count(*) AS n FROM t")
}

func bytesIn(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestForkCostsTheSame: neither a fork nor the first insert after it writes more
// for a large database than for a small one.
func TestForkCostsTheSame(t *testing.T) {
	cost := func(rows int) (fork, insert int64) {
		w := newWorld(t)
		w.create("a", layer.Ref{})
		c := serve(t, w.head("a"), nil, nil, nativetest.Modern)
		c.exec("CREATE TABLE t(a, b); WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < ?) INSERT INTO t SELECT i, zeroblob(3000) FROM n", rows)
		before := bytesIn(t, w.dir)
		w.fork("a", "b")
		fork = bytesIn(t, w.dir) - before
		child := serve(t, w.head("b"), nil, nil, nativetest.Modern)
		child.exec("INSERT INTO t VALUES (1, 2)")
		return fork, bytesIn(t, w.dir) - before - fork
	}
	smallFork, smallInsert := cost(1)
	largeFork, largeInsert := cost(10_000)
	if largeFork > smallFork+64 || largeFork > 4096 {
		t.Errorf("a fork of 30 MB writes %d bytes, of 3 KB %d", largeFork, smallFork)
	}
	if largeInsert > smallInsert+4096 {
		t.Errorf("an insert into 30 MB writes %d bytes, into 3 KB %d", largeInsert, smallInsert)
	}
}

func TestReopen(t *testing.T) {
	w := newWorld(t)
	w.create("a", layer.Ref{})
	h := w.head("a")
	srv, closer, err := New(nil, h, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := client{t, nativetest.Connect(t, srv, nativetest.Modern, nil)}
	c.exec("CREATE TABLE t(a); INSERT INTO t VALUES (1)")
	closeOf(t, closer)
	closeOf(t, closer)
	c.fails("closed", "query", args{"sql": "SELECT 1"})
	h.Close()
	w.store.Close()
	w.openStore()
	if err := w.store.Recover([]string{w.state("a")}, nil); err != nil {
		t.Fatal(err)
	}
	serve(t, w.head("a"), nil, nil, nativetest.Modern).want(`{"a":1}`, "SELECT * FROM t")
}

// TestRewrite updates the same rows until the layer is rewritten, which moves
// every page.
func TestRewrite(t *testing.T) {
	w := newWorld(t)
	w.create("base", layer.Ref{})
	base := serve(t, w.head("base"), nil, nil, nativetest.Modern)
	base.exec("CREATE TABLE t(a INTEGER PRIMARY KEY, b); WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < 300) INSERT INTO t SELECT i, zeroblob(3000) FROM n")
	w.fork("base", "a")
	h := w.head("a")
	c := serve(t, h, nil, nil, nativetest.Modern)
	c.exec("DELETE FROM t WHERE a > 200")
	c.exec("VACUUM") // fewer pages than the base has
	for i := range 40 {
		c.exec("UPDATE t SET b = randomblob(2900) WHERE a % 2; INSERT INTO t(b) VALUES (?)", i)
	}
	own, err := w.store.StateSize(w.state("a"))
	if err != nil {
		t.Fatal(err)
	}
	if own > 20<<20 {
		t.Errorf("the layer has %d bytes for a database of %d", own, h.Value().Size())
	}
	c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
	c.want(`{"n":240,"l":300000}`, "SELECT count(*) AS n, sum(length(b)) FILTER (WHERE a <= 200 AND a % 2 = 0) AS l FROM t")
	base.want(`{"n":300}`, "SELECT count(*) AS n FROM t")
	h.Close()
	c2 := serve(t, w.head("a"), nil, nil, nativetest.Modern)
	c2.want(`{"n":240}`, "SELECT count(*) AS n FROM t")
	c2.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
}

// TestFullDisk makes commits fail, at once and in the middle.
func TestFullDisk(t *testing.T) {
	h := newDB(t)
	e := newEngine(h, limits{timeout: time.Minute, maxRows: 10, maxSize: 1 << 30})
	defer e.Close()
	run := func(sql string, hurt func(c *conn)) (*script, error) {
		var x *script
		err := e.call(t.Context(), func(ctx context.Context, c *conn) (err error) {
			if hurt != nil {
				hurt(c)
			}
			x, err = c.execute(ctx, strings.NewReader(sql), nil, 10)
			return err
		})
		return x, err
	}
	count := func() string {
		t.Helper()
		x, err := run("SELECT count(*) AS n FROM t; PRAGMA integrity_check", nil)
		if err != nil || string(x.rows.data) != `{"integrity_check":"ok"}` {
			t.Fatalf("check: %v", err)
		}
		x, err = run("SELECT count(*) AS n FROM t", nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(x.rows.data)
	}
	const fill = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < 2000) INSERT INTO t SELECT zeroblob(2000) FROM n"
	if _, err := run("CREATE TABLE t(a); INSERT INTO t VALUES (1)", nil); err != nil {
		t.Fatal(err)
	}
	atOnce := func(c *conn) {
		c.file.commit = func(*change, io.Reader) error { return syscall.ENOSPC }
	}
	inTheMiddle := func(c *conn) {
		was := c.file.commit
		c.file.commit = func(ch *change, body io.Reader) error {
			return was(ch, io.MultiReader(io.LimitReader(body, int64(ch.count())*int64(ch.pageSize)/2), broken{}))
		}
	}
	for i, hurt := range []func(*conn){atOnce, inTheMiddle} {
		for _, sql := range []string{"INSERT INTO t VALUES (2)", fill, "UPDATE t SET a = zeroblob(100000)", "DROP TABLE t", "VACUUM"} {
			before := h.Value()
			if _, err := run(sql, hurt); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "did not happen") {
				t.Errorf("%d: %s: %v", i, sql, err)
			}
			if h.Value() != before {
				t.Errorf("%d: %s has changed something", i, sql)
			}
			if got := count(); got != fmt.Sprintf(`{"n":%d}`, 1+i*2000) {
				t.Errorf("%d: after %s: %s", i, sql, got)
			}
		}
		if _, err := run(fill, nil); err != nil {
			t.Error(err)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestConcurrentCalls(t *testing.T) {
	w := newWorld(t)
	w.create("a", layer.Ref{})
	c := serve(t, w.head("a"), nil, nil, nativetest.Modern)
	c.exec("CREATE TABLE t(a INTEGER PRIMARY KEY, b)")
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				c.exec("INSERT INTO t(b) VALUES (?); UPDATE t SET b = b", fmt.Sprint(g, i))
				c.rows("SELECT count(*) AS n FROM t")
				if i%10 == 5 {
					// A fork in between sees whole transactions.
					ref, err := w.store.Seal(w.state("a"))
					if err != nil {
						t.Error(err)
						return
					}
					w.store.Release(ref)
				}
			}
		})
	}
	wg.Wait()
	c.want(`{"n":160}`, "SELECT count(*) AS n FROM t")
	c.want(`{"integrity_check":"ok"}`, "PRAGMA integrity_check")
}

// TestIdle: an idle connection is closed, and no call notices.
func TestIdle(t *testing.T) {
	e := newEngine(newDB(t), limits{timeout: time.Minute, maxRows: 10, maxSize: 1 << 30})
	e.idle = time.Millisecond
	defer e.Close()
	for i := range 3 {
		err := e.call(t.Context(), func(ctx context.Context, c *conn) error {
			_, err := c.execute(ctx, strings.NewReader(fmt.Sprintf("CREATE TABLE t%d(a); SELECT * FROM t0", i)), nil, 10)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the connection is closed", func() bool {
			e.turn <- struct{}{}
			defer func() { <-e.turn }()
			defer e.rest() // this was no call, which would have done so
			return e.conn == nil
		})
	}
}
