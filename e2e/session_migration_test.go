//go:build unix

package e2e

import (
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/tine-mcp/tine/api"
)

// The token and the client's connection of the state in testdata/state2.
const (
	oldToken  = "tine_cg6hXjbMbBXDXdeILAvYsCw9M2qH0qNxUeQ96Lm-BnU"
	oldClient = "a1dc2121344f90e49c0d078cd20a2fa3"
)

// oldState makes a state folder as a gateway without forks left it.
func oldState(t *testing.T, state string) {
	t.Helper()
	now := time.Now().Add(-time.Minute)
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join("testdata", "state2", name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer("$NOW", strconv.FormatInt(now.UnixNano(), 10), "$AT", now.UTC().Format(time.RFC3339Nano)).Replace(string(data))
	}
	if err := os.MkdirAll(filepath.Join(state, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "journal", "00000001.jsonl"), []byte(read("journal.jsonl")), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", filepath.Join(state, "tine.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("PRAGMA journal_mode = WAL"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(read("tine.sql")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(state, "tine.db"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSessionMigration starts on the state folder of a gateway that knew no
// forks: tokens, sessions, connections, settings and journal are as they were, a
// copy of the old database is there, and the sessions of then fork.
func TestSessionMigration(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "servers:\n  clock: {builtin: time}\n"+yamlBuiltins)
	oldState(t, g.state())
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(g.state(), "tine.db.v2.backup")
	if info, err := os.Stat(backup); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy of the old database: %v, %v", info, err)
	}
	mem := memoryShelf("mem")
	for round := range 2 {
		// The client of then goes on where it was.
		s := &session{url: g.url + "/mcp", id: oldClient, header: http.Header{
			"Authorization": {"Bearer " + oldToken}, "Mcp-Session-Id": {oldClient}, "Mcp-Protocol-Version": {legacyVersion},
		}}
		if got := s.mustCall(t, "clock__get_current_time", object{"timezone": "UTC"}); !strings.Contains(got, "UTC") {
			t.Errorf("the clock says %q", got)
		}
		bob := g.clientAs(t, oldToken)
		was, err := bob.Session(t.Context(), "ses_94ad8a6ce54e")
		if err != nil || was.Kind != api.SessionDefault || was.Owner != "bob" || !was.Closed.IsZero() {
			t.Errorf("the session of then: %+v, %v", was, err)
		}
		if got := g.show(t, "clock"); strings.Join(got.Overrides, " ") != "timeout" || got.Policy.Timeout != "17s" {
			t.Errorf("what was set at run time: %q, %+v", got.Overrides, got.Policy)
		}
		call, err := g.client(t).JournalCall(t.Context(), "call_000000000001")
		if err != nil || !strings.Contains(string(call.Result), "long ago") {
			t.Errorf("the call of then: %+v, %v", call, err)
		}
		// And it forks.
		if round == 0 {
			s.mustCall(t, "mem__create_entities", object{"entities": []entity{{"k", "thing", []string{"v"}}}})
		}
		child := fork(t, bob, "ses_94ad8a6ce54e", 1)[0]
		mem.mustHold(t, bob, child.ID, map[string]string{"k": "v"})
		g.kill()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		mem.mustHold(t, g.clientAs(t, child.Token), child.ID, map[string]string{"k": "v"})
	}
	if _, err := os.Stat(backup); err != nil {
		t.Errorf("the copy of the old database after the next start: %v", err)
	}

	// A database of a version that is not known yet is left alone.
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", filepath.Join(g.state(), "tine.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("UPDATE schema_version SET version = 1000"); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err == nil || !strings.Contains(err.Error(), "newer Tine") {
		t.Errorf("a start on the database of a newer version: %v", err)
	}
}
