package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/storetest"
)

// What released Tines have written, in the words of their schema.
var (
	release1 = []string{
		"INSERT INTO meta VALUES ('gateway_id', 'gw_0123456789ab')",
		"INSERT INTO overrides (server, enabled) VALUES ('on', 1), ('off', 0), ('as is', NULL)",
		"INSERT INTO handles VALUES ('k', 'process', 'fs', 'ses_1', '/dir', x'7b7d', 'hash', NULL, 5)",
		"INSERT INTO sessions VALUES ('ses_1', 'ann', 'default', 5, 6, x'7b7d'), ('ses_2', 'bob', 'client', 7, 8, NULL)",
		"INSERT INTO clients VALUES ('c', 'ses_1', '/mcp', 'ann', '2025-11-25', x'7b7d', 5, 6)",
	}
	release2 = append(release1[:len(release1):len(release1)],
		"UPDATE overrides SET settings = x'7b7d' WHERE server = 'on'",
		"INSERT INTO tokens VALUES ('t', 'hash', 'operator', 5, 0)",
		"INSERT INTO credentials VALUES ('s', 'ann', x'7b7d', 5)",
	)
)

// TestReleasedSchemas fills a database as each released Tine made it and opens
// it with this one.
func TestReleasedSchemas(t *testing.T) {
	for version, fill := range map[int][]string{1: release1, 2: release2} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tine.db")
			old := mustOpen(t, path, schema[:version])
			for _, query := range fill {
				if _, err := old.db.Exec(query); err != nil {
					t.Fatalf("%s: %v", query, err)
				}
			}
			if version >= 2 {
				var w blockWriter
				b := w.block([]store.Call{{Seq: 1, Server: "fs", Session: "ses_1"}})
				if _, err := old.db.Exec("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
					b.first, b.last, b.segment, b.newest, b.size, b.failed, b.servers, b.principals, b.sessions, b.data); err != nil {
					t.Fatal(err)
				}
			}
			old.Close()
			d := mustOpen(t, path, schema)
			defer d.Close()
			checkRelease(t, d, version)
			checkNew(t, d)

			backup := fmt.Sprintf("%s.v%d.backup", path, version)
			st, err := os.Stat(backup)
			if err != nil {
				t.Fatal(err)
			}
			if st.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
				t.Errorf("the backup has mode %v", st.Mode())
			}
			// It works in place of the other, with the Tine of its time and with this.
			for _, steps := range [][]string{schema[:version], schema} {
				b := mustOpen(t, backup, steps)
				if all, err := b.Handles(context.Background()); err != nil || len(all) != 1 {
					t.Errorf("the backup holds %v, %v", all, err)
				}
				if len(steps) == len(schema) {
					checkRelease(t, b, version)
				}
				b.Close()
			}
		})
	}
}

func checkRelease(t *testing.T, d *DB, version int) {
	t.Helper()
	ctx := context.Background()
	if id, err := d.GatewayID(ctx); id != "gw_0123456789ab" || err != nil {
		t.Errorf("gateway id %q, %v", id, err)
	}
	overrides, err := d.Overrides(ctx)
	if err != nil || len(overrides) != 3 || !*overrides["on"].Enabled || *overrides["off"].Enabled || overrides["as is"].Enabled != nil || (overrides["on"].Set != nil) != (version >= 2) {
		t.Errorf("overrides %v, %v", overrides, err)
	}
	if all, err := d.Handles(ctx); err != nil || len(all) != 1 || all[0].SpecHash != "hash" {
		t.Errorf("handles %v, %v", all, err)
	}
	want := []store.Session{
		{ID: "ses_1", Owner: "ann", Kind: "default", Created: time.Unix(0, 5).UTC(), Used: time.Unix(0, 6).UTC(), Data: json.RawMessage(`{}`)},
		{ID: "ses_2", Owner: "bob", Kind: "client", Created: time.Unix(0, 7).UTC(), Used: time.Unix(0, 8).UTC()},
	}
	if all, err := d.Sessions(ctx); err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("sessions %v, %v", all, err)
	}
	if all, err := d.FindSessions(ctx, store.SessionFilter{}); err != nil || len(all) != 2 || all[0].ID != "ses_2" {
		t.Errorf("sessions found %v, %v", all, err)
	}
	if all, err := d.Clients(ctx); err != nil || len(all) != 1 || all[0].View != "/mcp" {
		t.Errorf("clients %v, %v", all, err)
	}
	if version < 2 {
		return
	}
	if all, err := d.Tokens(ctx); err != nil || len(all) != 1 || all[0].Role != "operator" {
		t.Errorf("tokens %v, %v", all, err)
	}
	if _, ok, err := d.Credential(ctx, "s", "ann"); !ok || err != nil {
		t.Errorf("credential %v, %v", ok, err)
	}
	if all, err := d.Calls(ctx, store.CallFilter{Run: "run_1"}); err != nil || len(all) != 0 {
		t.Errorf("calls of a run %v, %v", all, err)
	}
	if all, err := d.Calls(ctx, store.CallFilter{Session: "ses_1"}); err != nil || len(all) != 1 {
		t.Errorf("calls %v, %v", all, err)
	}
}

// checkNew uses what none of the released had.
func checkNew(t *testing.T, d *DB) {
	t.Helper()
	ctx := context.Background()
	for step, err := range map[string]error{
		"override":   storetest.PutOverride(ctx, d, "new", store.Override{Set: json.RawMessage(`{}`)}),
		"credential": d.PutCredential(ctx, store.Credential{Server: "new"}),
		"token":      storetest.PutToken(ctx, d, store.Token{Name: "new"}),
		"call":       d.PutCalls(ctx, []store.Call{{Seq: 9}}),
		"session":    d.PutSessions(ctx, store.Session{ID: "ses_new", Parent: "ses_1", Catalog: "c", Servers: json.RawMessage(`[]`), Closed: time.Unix(9, 0)}),
		"event":      d.PutEvents(ctx, store.Event{Session: "ses_1", Kind: "forked"}),
		"snapshot":   d.PutSnapshot(ctx, store.Snapshot{ID: "snap_1", Name: "n"}),
		"run":        d.ChangeAgents(ctx, func(tx store.AgentTx) error { return tx.PutRun(store.Run{ID: "run_1", Session: "ses_1"}) }),
	} {
		if err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
	if _, ok, err := d.BeginCreation(ctx, store.Creation{Owner: "ann", Key: "k"}, time.Time{}); !ok || err != nil {
		t.Errorf("creation: %v, %v", ok, err)
	}
}

// TestBackupsAreFew holds to it that a backup goes when the change after the
// one it was made for has succeeded, and not before.
func TestBackupsAreFew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tine.db")
	steps := schema[:1:1]
	mustOpen(t, path, steps).Close()
	names := func() string {
		files, err := filepath.Glob(path + ".*")
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range files {
			files[i] = filepath.Base(f)
		}
		return strings.Join(files, " ")
	}
	for version := 2; version <= 4; version++ {
		if _, err := open(context.Background(), path, append(steps[:len(steps):len(steps)], "CREATE TABLE meta (again INTEGER)")); err == nil {
			t.Fatal("a bad step gave no error")
		}
		want := fmt.Sprintf("tine.db.v%d.backup", version-1)
		if version > 2 {
			want = fmt.Sprintf("tine.db.v%d.backup %s", version-2, want)
		}
		if got := names(); got != want {
			t.Errorf("after a change to %d that failed there are %q, want %q", version, got, want)
		}
		steps = append(steps, fmt.Sprintf("CREATE TABLE extra%d (x INTEGER) STRICT", version))
		mustOpen(t, path, steps).Close()
		if got, want := names(), fmt.Sprintf("tine.db.v%d.backup", version-1); got != want {
			t.Errorf("after the change to %d there are %q, want %q", version, got, want)
		}
	}
}

func TestMigrationKeepsDataAndABackup(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "o'tine.db")
	d := mustOpen(t, path, schema)
	if err := d.PutHandle(ctx, store.Handle{Key: "before"}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	if backups, _ := filepath.Glob(path + "*backup*"); len(backups) != 0 {
		t.Fatalf("a new database was backed up: %v", backups)
	}

	next := append(schema[:len(schema):len(schema)], "CREATE TABLE extra (x INTEGER) STRICT", "INSERT INTO extra VALUES (7)")
	d = mustOpen(t, path, next)
	var x int
	if err := d.db.QueryRow("SELECT x FROM extra").Scan(&x); err != nil || x != 7 {
		t.Errorf("the steps were not done: %d, %v", x, err)
	}
	if all, err := d.Handles(ctx); err != nil || len(all) != 1 || all[0].Key != "before" {
		t.Errorf("handles after the migration: %v, %v", all, err)
	}
	d.Close()
	d = mustOpen(t, path, next) // nothing to do a second time
	d.Close()

	// A Tine that does not know the new schema says so and names the backup,
	// which works in its place.
	_, err := open(ctx, path, schema)
	backup := path + fmt.Sprintf(".v%d.backup", len(schema))
	if err == nil || !strings.Contains(err.Error(), backup) {
		t.Errorf("opened by an older one: %v", err)
	}
	old := mustOpen(t, backup, schema)
	defer old.Close()
	if all, err := old.Handles(ctx); err != nil || len(all) != 1 {
		t.Errorf("the backup holds %v, %v", all, err)
	}
}

func TestMigrationThatFailsChangesNothing(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "tine.db")
	d := mustOpen(t, path, schema)
	if err := d.PutHandle(ctx, store.Handle{Key: "before"}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	bad := append(schema[:len(schema):len(schema)], "DELETE FROM handles", "CREATE TABLE handles (again INTEGER)")
	if _, err := open(ctx, path, bad); err == nil {
		t.Fatal("a bad step gave no error")
	}
	d = mustOpen(t, path, schema)
	defer d.Close()
	if all, err := d.Handles(ctx); err != nil || len(all) != 1 {
		t.Errorf("after a failed migration: %v, %v", all, err)
	}
}
