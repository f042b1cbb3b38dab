package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// duckBytes is how large the database is at least.
const duckBytes = 200e6

// duckMake writes a database of which nothing can be compressed.
const duckMake = `
import sys, duckdb
c = duckdb.connect(sys.argv[1])
c.execute("SET enable_progress_bar = false")
c.execute("CREATE TABLE big AS SELECT i::INTEGER AS id, uuid() AS a, uuid() AS b, uuid() AS c, uuid() AS d FROM range(3250000) t(i)")
c.execute("CREATE TABLE marks (mark TEXT)")
c.execute("CHECKPOINT")
c.close()
`

// duckQuiet keeps the server from asking the network for a newer one.
const duckQuiet = "FASTMCP_CHECK_FOR_UPDATES"

// duck is a session with a database, and the file it began with.
type duck struct {
	*world
	g       *rig
	tree    string // a directory with the database
	program string // its server
	parent  string
	pair
}

// forkDuckDB times forks of a session with a DuckDB database, and in turn a copy
// of its file and a start of the same server.
func (t *trials) forkDuckDB(ctx context.Context) (_ []reading, err error) {
	tools, err := toolsFolder()
	if err != nil {
		return nil, err
	}
	d := &duck{g: t.g, tree: filepath.Join(t.g.dir, "duckdb"), program: filepath.Join(tools, duckProgram)}
	size, err := makeDuck(ctx, filepath.Join(tools, pythonProgram), d.tree)
	if err != nil {
		return nil, err
	}
	name := sizeName(size)
	d.pair = newPair("cp -a and bare start, "+name, "fork, "+name)
	d.world, err = t.g.newWorld(ctx, "rollout-duckdb", map[string]any{
		"servers": map[string]any{"duck": map[string]any{
			"preset": "duckdb", "command": d.program, "env": map[string]string{duckQuiet: "off"},
			"state": map[string]any{"data": d.tree}, "connect_timeout": startTimeout.String(),
		}},
		"sessions": unbounded(),
	})
	if err != nil {
		return nil, err
	}
	defer d.gate.stop()
	if d.parent, err = d.open(ctx); err != nil {
		return nil, err
	}
	// What it has in memory of its file is not on the disk that is copied.
	if _, err := d.query(ctx, d.parent, "SELECT count(*) FROM big"); err != nil {
		return nil, err
	}
	flushDisks()
	for round := range t.s.Rounds {
		if err := d.round(1, round,
			func() error { return d.copied(ctx) },
			func() error { return d.forked(ctx) },
		); err != nil {
			return nil, err
		}
	}
	return compared(d.list()), nil
}

// makeDuck makes the database in a directory of its own.
func makeDuck(ctx context.Context, python, dir string) (int64, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	file := filepath.Join(dir, "data.duckdb")
	if out, err := exec.CommandContext(ctx, python, "-c", duckMake, file).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("make a DuckDB database: %w: %s", err, bytes.TrimSpace(out))
	}
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	if info.Size() < duckBytes {
		return 0, fmt.Errorf("the DuckDB database has only %d bytes", info.Size())
	}
	return info.Size(), nil
}

func (d *duck) query(ctx context.Context, session, sql string) (string, error) {
	return d.call(ctx, session, "duck__execute_query", map[string]any{"sql": sql})
}

// forked writes a row in the parent, times a fork, and looks whether the child has
// the row and the rest.
func (d *duck) forked(ctx context.Context) error {
	mark := d.newMark()
	if _, err := d.query(ctx, d.parent, "INSERT INTO marks VALUES ('"+mark+"')"); err != nil {
		return err
	}
	began := time.Now()
	ids, err := d.fork(ctx, d.parent, 1)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := d.started(ctx, ids[0], "duck"); err != nil {
		return err
	}
	got, err := d.query(ctx, ids[0], "SELECT mark, (SELECT count(*) FROM big) FROM marks WHERE mark = '"+mark+"'")
	if err := errors.Join(knows(got, mark, err), knows(got, "3250000", err)); err != nil {
		return err
	}
	d.tine.add(took)
	return d.close(ctx, ids...)
}

// copied times what anybody would do by hand.
func (d *duck) copied(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	to := filepath.Join(d.g.dir, "duckdb-copy")
	began := time.Now()
	if out, err := exec.CommandContext(ctx, "cp", "-a", d.tree, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the database with cp -a: %w: %s", err, out)
	}
	p, err := launch(d.g.launcher, d.g.dir, "bare-duckdb", true, "env", duckQuiet+"=off", d.program,
		"--db-path", filepath.Join(to, "data.duckdb"), "--read-write")
	if err != nil {
		return err
	}
	l := newStdioLink(p.stdin, p.stdout, "execute_query", minPayload)
	defer l.close()
	defer p.stop()
	if err := l.handshake(ctx); err != nil {
		return p.explain(err)
	}
	d.raw.add(time.Since(began))
	call, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": "execute_query", "arguments": map[string]any{"sql": "SELECT count(*) FROM big"},
	}})
	if err != nil {
		return err
	}
	line, err := l.roundTrip(ctx, "1", call)
	if err != nil || !strings.Contains(string(line), "3250000") {
		return errors.Join(fmt.Errorf("the copy is not whole: %.300s", line), err)
	}
	return os.RemoveAll(to)
}
