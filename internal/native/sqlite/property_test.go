package sqlite

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/nativetest"
)

// twin is a database of ours and a plain one in memory that should be the same.
type twin struct {
	name  string
	head  *layer.Head[*DB]
	close func()
	c     client
	plain *sqlite3.Conn
	log   []string // what made the plain one
}

func (tw *twin) open(w *world, plain bool) {
	w.t.Helper()
	h, err := layer.Open(w.store, w.state(tw.name), Machine())
	if err != nil {
		w.t.Fatal(err)
	}
	tw.head = h
	srv, closer, err := New(nil, h, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	tw.c = client{w.t, nativetest.Connect(w.t, srv, nativetest.Modern, nil)}
	tw.close = func() {
		closeOf(w.t, closer)
		h.Close()
	}
	if !plain {
		return
	}
	if tw.plain, err = sqlite3.Open(":memory:"); err != nil {
		w.t.Fatal(err)
	}
	for _, sql := range tw.log {
		if err := tw.plain.Exec(sql); err != nil {
			w.t.Fatalf("%s again: %v", sql, err)
		}
	}
}

// run executes a script in both, as one transaction.
func (tw *twin) run(t *testing.T, sql string) {
	t.Helper()
	alone := strings.HasPrefix(sql, "VACUUM")
	if !alone {
		if err := tw.plain.Exec("BEGIN"); err != nil {
			t.Fatal(err)
		}
	}
	want := tw.plain.Exec(sql)
	switch {
	case alone:
	case want == nil:
		if err := tw.plain.Exec("COMMIT"); err != nil {
			t.Fatal(err)
		}
	case !tw.plain.GetAutocommit():
		if err := tw.plain.Exec("ROLLBACK"); err != nil {
			t.Fatal(err)
		}
	}
	res := nativetest.Call(t, tw.c.cs, "execute", args{"sql": sql})
	if res.IsError != (want != nil) {
		t.Fatalf("%s in %s: %s; the plain one says %v", sql, tw.name, nativetest.Text(res), want)
	}
	if want == nil {
		tw.log = append(tw.log, sql)
	}
}

func (tw *twin) check(t *testing.T, sql string) {
	t.Helper()
	s, _, err := tw.plain.Prepare(sql)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := collect(t.Context(), s, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if got := tw.c.rows(sql); got != string(r.data) {
		t.Fatalf("%s in %s:\n got %.400s\nwant %.400s\nafter:\n%s", sql, tw.name, got, r.data, strings.Join(tw.log, "\n"))
	}
}

// TestAgainstPlainDatabase runs random statements on a family of databases, with
// forks and reopening in between, against plain databases.
func TestAgainstPlainDatabase(t *testing.T) {
	seeds, steps := uint64(4), 250
	if underRace {
		seeds, steps = 2, 40
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			w := newWorld(t)
			w.create("0", layer.Ref{})
			twins := []*twin{{name: "0"}}
			twins[0].open(w, true)
			twins[0].run(t, "CREATE TABLE t(a INTEGER PRIMARY KEY, b, c TEXT); CREATE INDEX i ON t(b)")
			defer func() {
				for _, tw := range twins {
					tw.close()
					tw.plain.Close()
				}
			}()
			for range steps {
				tw := twins[rnd.IntN(len(twins))]
				switch n := rnd.IntN(40); {
				case n == 0 && len(twins) < 8:
					child := &twin{name: fmt.Sprint(len(twins)), log: strings.Split(strings.Join(tw.log, "\x00"), "\x00")}
					w.fork(tw.name, child.name)
					child.open(w, true)
					twins = append(twins, child)
				case n == 1:
					tw.close()
					tw.open(w, false)
				case n == 2: // as after a restart
					var names []string
					for _, o := range twins {
						o.close()
						names = append(names, w.state(o.name))
					}
					w.store.Close()
					w.openStore()
					if err := w.store.Recover(names, nil); err != nil {
						t.Fatal(err)
					}
					for _, o := range twins {
						o.open(w, false)
					}
				default:
					tw.run(t, statement(rnd))
				}
				tw.check(t, "SELECT count(*), sum(length(c)), min(b), max(a) FROM t")
			}
			for _, tw := range twins {
				tw.check(t, "SELECT * FROM t ORDER BY a LIMIT 900")
				tw.check(t, "SELECT type, name, sql FROM sqlite_schema ORDER BY name")
				tw.check(t, "PRAGMA integrity_check")
			}
		})
	}
}

func statement(rnd *rand.Rand) string {
	a, b := rnd.IntN(3000), rnd.IntN(50)
	switch rnd.IntN(15) {
	case 0, 1, 2:
		return fmt.Sprintf("INSERT OR IGNORE INTO t VALUES (%d, %d, hex(zeroblob(%d)))", a, b, rnd.IntN(3000))
	case 3:
		return fmt.Sprintf("WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i < %d) INSERT OR REPLACE INTO t SELECT i + %d, i, hex(zeroblob(i * 3)) FROM n", rnd.IntN(400), a)
	case 4:
		return fmt.Sprintf("UPDATE t SET b = b + 1, c = c || 'x' WHERE a %% 7 = %d", rnd.IntN(7))
	case 5:
		return fmt.Sprintf("DELETE FROM t WHERE b = %d", b)
	case 6:
		return fmt.Sprintf("DELETE FROM t WHERE a > %d", a)
	case 7:
		return fmt.Sprintf("INSERT INTO t VALUES (%d, 1, 'x'); INSERT INTO t VALUES (%d, 2, 'y')", a, a) // fails
	case 8:
		return fmt.Sprintf("UPDATE t SET c = NULL; SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; RELEASE s; INSERT OR IGNORE INTO t VALUES (%d, 0, 'sp')", a)
	case 9:
		return fmt.Sprintf("CREATE TABLE IF NOT EXISTS u%d(x); INSERT INTO u%d VALUES (1)", b%5, b%5)
	case 10:
		return fmt.Sprintf("DROP TABLE IF EXISTS u%d", b%5)
	case 11:
		return "VACUUM"
	case 12:
		return "DROP INDEX IF EXISTS i; CREATE INDEX i ON t(b, c)"
	case 13:
		return fmt.Sprintf("UPDATE t SET a = a + 100000 WHERE a < %d; UPDATE nothing SET a = 1", a) // fails
	}
	return fmt.Sprintf("UPDATE OR REPLACE t SET a = a + 1 WHERE a BETWEEN %d AND %d", a, a+b)
}
