//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// duckRows are the rows that the database begins with, of at least duckRowSize
// bytes each.
var duckRows = torture.Or(325_000, 3_250_000)

const duckRowSize = 60

// duckSum is a checksum of all that the database begins with.
const duckSum = "SELECT count(*), bit_xor(hash(big)) FROM big"

// duckMake writes a database of which nothing can be compressed, and says its
// checksum.
const duckMake = `
import json, sys, duckdb
c = duckdb.connect(sys.argv[1])
c.execute("SET enable_progress_bar = false")
c.execute("CREATE TABLE big AS SELECT i::INTEGER AS id, uuid() AS a, uuid() AS b, uuid() AS c, uuid() AS d FROM range(?) t(i)", [int(sys.argv[3])])
c.execute("CREATE TABLE steps (n INTEGER)")
c.execute("CREATE TABLE marks (who TEXT)")
c.execute("CHECKPOINT")
print(json.dumps(c.execute(sys.argv[2]).fetchone()))
c.close()
`

// duckTemplate is a directory with the database, and the checksum; made once.
var duckTemplate = sync.OnceValues(func() (t struct{ dir, sum string }, err error) {
	t.dir = filepath.Join(filepath.Dir(badServer), "duckdb")
	if err := os.Mkdir(t.dir, 0o755); err != nil {
		return t, err
	}
	file := filepath.Join(t.dir, "data.duckdb")
	cmd := exec.Command(filepath.Join(toolsDir(), python), "-c", duckMake, file, duckSum, strconv.Itoa(duckRows))
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return t, fmt.Errorf("make a DuckDB database: %w\n%s", err, complaint.Bytes())
	}
	info, err := os.Stat(file)
	if err != nil {
		return t, err
	}
	if info.Size() < int64(duckRows*duckRowSize) {
		return t, fmt.Errorf("the database has only %d bytes", info.Size())
	}
	var row []json.RawMessage
	err = decodeInto(out.Bytes(), &row)
	t.sum = duckRow(row)
	return t, err
})

func duckRow(row []json.RawMessage) string { return fmt.Sprintf("%s", row) }

// duckWorld is a session with the database, in which a client keeps writing.
type duckWorld struct {
	t      *testing.T
	c      *client.Client
	parent string
	sum    string
	acked  atomic.Int64 // how many steps are written; they are 1, 2, 3 and so on
}

const duckServer = "duck"

// startDuck opens a session whose DuckDB begins with the database.
func startDuck(t *testing.T, entry string, env ...string) (*gateway, *duckWorld) {
	t.Helper()
	template, err := duckTemplate()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, fmt.Sprintf("servers:\n  %s: {preset: duckdb, connect_timeout: 5m, env: {FASTMCP_CHECK_FOR_UPDATES: \"off\", FASTMCP_SHOW_SERVER_BANNER: \"false\"}, %s}\n",
		duckServer, strings.ReplaceAll(entry, "TEMPLATE", template.dir)), env...)
	w := &duckWorld{t: t, c: g.client(t), sum: template.sum}
	w.parent = openSession(t, w.c, api.NewSession{}).ID
	for range 3 {
		if err := w.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.mark(t.Context(), w.parent); err != nil {
		t.Fatal(err)
	}
	return g, w
}

func (w *duckWorld) query(ctx context.Context, session, sql string) ([][]json.RawMessage, error) {
	return duckQuery(ctx, user{w.c, session, duckServer}, sql)
}

// step writes the next one in the parent.
func (w *duckWorld) step(ctx context.Context) error {
	n := w.acked.Load() + 1
	if _, err := w.query(ctx, w.parent, fmt.Sprintf("INSERT INTO steps VALUES (%d)", n)); err != nil {
		return err
	}
	w.acked.Store(n)
	return nil
}

// mark writes a session's own row.
func (w *duckWorld) mark(ctx context.Context, session string) error {
	_, err := w.query(ctx, session, fmt.Sprintf("INSERT INTO marks VALUES ('%s')", session))
	return err
}

// write keeps writing steps until the function that it returns is called.
func (w *duckWorld) write() (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			// A step that was begun is ended, so that one is written or not.
			if err := w.step(w.t.Context()); err != nil {
				done <- err
				return
			}
			time.Sleep(100 * time.Millisecond) // others want the processor too
		}
		done <- nil
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the parent could not go on writing: %v", err)
		}
	}
}

// holds says how many steps a session has, and holds that they have no gap, that
// the whole database is there and that the marks are these.
func (w *duckWorld) holds(ctx context.Context, session string, marks ...string) (steps int64, err error) {
	rows, err := w.query(ctx, session, "SELECT count(*), count(DISTINCT n), coalesce(min(n), 1), coalesce(max(n), 0) FROM steps")
	if err != nil {
		return 0, err
	}
	var of [4]int64
	for i := range of {
		if err := decodeInto(rows[0][i], &of[i]); err != nil {
			return 0, err
		}
	}
	if of[1] != of[0] || of[2] != 1 || of[3] != of[0] {
		return 0, fmt.Errorf("%s has %d steps, %d of them different, from %d to %d", session, of[0], of[1], of[2], of[3])
	}
	if rows, err = w.query(ctx, session, "SELECT who FROM marks"); err != nil {
		return 0, err
	}
	var got []string
	for _, row := range rows {
		var who string
		if err := decodeInto(row[0], &who); err != nil {
			return 0, err
		}
		got = append(got, who)
	}
	slices.Sort(got)
	slices.Sort(marks)
	if !slices.Equal(got, marks) {
		return 0, fmt.Errorf("%s sees the rows of %v, want %v", session, got, marks)
	}
	if rows, err = w.query(ctx, session, duckSum); err != nil {
		return 0, err
	}
	if sum := duckRow(rows[0]); sum != w.sum {
		return 0, fmt.Errorf("%s has a database with checksum %s, want %s", session, sum, w.sum)
	}
	return of[0], nil
}

// batch forks the parent while it is written to. Each child writes a row of its
// own at the same time as the others, and then sees that one and what the parent
// had at the fork.
func (w *duckWorld) batch(count int) {
	t := w.t
	t.Helper()
	before := w.acked.Load()
	children := fork(t, w.c, w.parent, count)
	after := w.acked.Load()
	errs := make(chan error, count)
	all := func(do func(child string) error) {
		t.Helper()
		for _, child := range children {
			go func() { errs <- do(child.ID) }()
		}
		var err error
		for range children {
			err = errors.Join(err, <-errs)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all(func(child string) error { return w.mark(t.Context(), child) })
	var mu sync.Mutex
	seen := map[int64]bool{}
	all(func(child string) error {
		steps, err := w.holds(t.Context(), child, w.parent, child)
		mu.Lock()
		defer mu.Unlock()
		seen[steps] = true
		return err
	})
	for steps := range seen {
		// One more may have been running when the last one was counted.
		if len(seen) != 1 || steps < before || steps > after+1 {
			t.Errorf("the children of one fork have %v steps; the parent had %d before it and %d after", seen, before, after)
			break
		}
	}
	if err := eventually(func() error {
		if w.acked.Load() <= after {
			return errors.New("the parent wrote nothing since the fork")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	all(func(child string) error { return w.c.CloseSession(t.Context(), child) })
}

// finish holds what the parent has in the end, and that nothing is left.
func (w *duckWorld) finish(g *gateway) {
	t := w.t
	t.Helper()
	steps, err := w.holds(t.Context(), w.parent, w.parent)
	if err != nil || steps != w.acked.Load() {
		t.Errorf("the parent has %d steps and wrote %d: %v", steps, w.acked.Load(), err)
	}
	if err := closeAll(t.Context(), w.c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
