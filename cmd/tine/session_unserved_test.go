package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every command on a session that is listed and not served says why, and what
// brings it back.
func TestUnservedSessionsSayWhy(t *testing.T) {
	state := filepath.Join(t.TempDir(), "s7")
	stop := gatewayOn(t, state)
	lost, homeless := openWith(t, state, "one"), openWith(t, state, "two")
	stop()
	files, err := filepath.Glob(filepath.Join(state, "catalogs", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("there are %v, %v", files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(state, "sessions", homeless)
	if err := os.Rename(home, home+".away"); err != nil {
		t.Fatal(err)
	}
	put := func(servers []byte) {
		t.Helper()
		db, err := sql.Open("sqlite3", databaseOf(state))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), "UPDATE catalogs SET servers = ?", servers); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], servers, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put([]byte(strings.Replace(string(good), `"memory"`, `"memorY"`, 1)))
	stop = gatewayOn(t, state)
	for id, want := range map[string][2]string{
		lost:     {"the servers it was made with are not recorded any more", "put " + files[0] + " back from a backup"},
		homeless: {"its folder is gone", "put " + home + " back from a backup"},
	} {
		if list := ok(t, state, "session", "list"); !strings.Contains(list, id) || !strings.Contains(list, want[0]) {
			t.Errorf("listed: %s", list)
		}
		for _, command := range []string{
			"session show " + id, "session fork " + id, "session snapshot " + id, "session close " + id, "session export " + id,
			"call --session " + id + " memory__read_graph", "tools --session " + id,
		} {
			_, stderr, code := inFolder(t, state, strings.Fields(command)...)
			if code == 0 || !strings.Contains(stderr, "session "+id+" is not served: "+want[0]) || !strings.Contains(stderr, want[1]) {
				t.Errorf("tine %s: exit %d, %q", command, code, stderr)
			}
		}
	}
	stop()
	put(good)
	if err := os.Rename(home+".away", home); err != nil {
		t.Fatal(err)
	}
	gatewayOn(t, state)
	knows(t, state, lost, "one")
	knows(t, state, homeless, "two")
}
