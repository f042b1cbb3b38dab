package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/testkit"
)

// gatewayOn runs a gateway on a state folder until stop is called.
func gatewayOn(t *testing.T, state string) (stop func()) {
	t.Helper()
	cfg, err := config.Parse([]byte("listen: 127.0.0.1:0\nservers: {memory: {builtin: memory}}\n"),
		config.Options{Path: "tine.yaml", Getenv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Path = "" // there is no such file to watch
	s, err := newService(t.Context(), serviceOptions{Config: cfg, State: state, Listen: true, Version: "test", Redact: telemetry.NewRedactor(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	stop = func() {
		if cancel == nil {
			return
		}
		cancel()
		cancel = nil
		if err := <-ran; err != nil {
			t.Error(err)
		}
		s.Close()
	}
	t.Cleanup(stop)
	testkit.Eventually(t, "the gateway has written where it is", func() bool {
		file, err := readGatewayFile(state)
		return err == nil && file.URL == s.url
	})
	return stop
}

// ok runs a command on a state folder that must work.
func ok(t *testing.T, state string, args ...string) string {
	t.Helper()
	stdout, stderr, code := inFolder(t, state, args...)
	if code != 0 {
		t.Fatalf("tine %s: exit %d, %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

func openWith(t *testing.T, state, entity string) string {
	t.Helper()
	var s api.Session
	if err := json.Unmarshal([]byte(ok(t, state, "session", "open", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	ok(t, state, "call", "--session", s.ID, "memory__create_entities", `entities:=[{"name":"`+entity+`","entityType":"x","observations":[]}]`)
	return s.ID
}

func knows(t *testing.T, state, id, entity string) {
	t.Helper()
	if got := ok(t, state, "call", "--session", id, "memory__read_graph"); !strings.Contains(got, entity) {
		t.Errorf("%s knows %s, not %s", id, got, entity)
	}
}

// filesIn is everything in a state folder but what a start or a command may always
// touch.
func filesIn(t *testing.T, state string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(state, path)
		if err != nil || d.IsDir() || rel == "lock" || strings.HasSuffix(rel, "-shm") {
			return err
		}
		b, err := os.ReadFile(path)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, what string, before, after map[string]string) {
	t.Helper()
	for path, content := range before {
		if now, ok := after[path]; !ok {
			t.Errorf("%s: %s is gone", what, path)
		} else if now != content {
			t.Errorf("%s: %s was changed", what, path)
		}
	}
}

func refused(t *testing.T, state string) string {
	t.Helper()
	s, err := newService(t.Context(), serviceOptions{Config: config.Default(), State: state, Version: "test", Redact: telemetry.NewRedactor(), Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		s.Close()
		t.Fatal("it started")
	}
	return err.Error()
}

// After any damage to the database nothing is removed, no gateway starts on what
// is left, and a restore brings all sessions back with what they know: those of
// the backup, and those that are newer.
func TestStateRestore(t *testing.T) {
	made := t.TempDir()
	stop := gatewayOn(t, made)
	old, gone := openWith(t, made, "old"), openWith(t, made, "gone")
	ok(t, made, "session", "snapshot", old, "--name", "base")
	token := strings.TrimSpace(ok(t, made, "token", "new", "alice"))
	further := strings.TrimSpace(ok(t, made, "session", "token", old, "--run", "r"))
	stop() // which makes a backup
	stop = gatewayOn(t, made)
	newer := openWith(t, made, "newer")
	ok(t, made, "session", "close", gone)
	ok(t, made, "token", "revoke", "alice")
	ok(t, made, "token", "new", "bob")
	// As if it were killed now: the backup is of before.
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(killed, os.DirFS(made)); err != nil {
		t.Fatal(err)
	}
	stop()
	db := filepath.Join(killed, "tine.db")
	wal, err := os.ReadFile(db + "-wal")
	if err != nil || len(wal) < 1<<14 {
		t.Fatalf("there is no log to damage: %d bytes, %v", len(wal), err)
	}
	write := func(path string, b []byte) func(*testing.T, string) {
		return func(t *testing.T, state string) {
			if err := os.WriteFile(filepath.Join(state, path), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	torn := bytes.Clone(whole)
	for i := 1 << 13; i < len(torn); i++ {
		torn[i] ^= 0xA5
	}
	badLog := bytes.Clone(wal)
	badLog[32+24+50] ^= 1
	drop := func(names ...string) func(*testing.T, string) {
		return func(t *testing.T, state string) {
			for _, name := range names {
				if err := os.Remove(filepath.Join(state, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
		}
	}
	both := func(all ...func(*testing.T, string)) func(*testing.T, string) {
		return func(t *testing.T, state string) {
			for _, do := range all {
				do(t, state)
			}
		}
	}
	noLog := drop("tine.db-wal", "tine.db-shm")
	for name, harm := range map[string]func(*testing.T, string){
		"missing":              drop("tine.db", "tine.db-wal", "tine.db-shm"),
		"missing, with a log":  drop("tine.db"),
		"empty":                both(noLog, write("tine.db", nil)),
		"empty, with a log":    write("tine.db", nil),
		"cut off":              both(noLog, write("tine.db", whole[:len(whole)/2+100])),
		"other bytes":          both(noLog, write("tine.db", torn)),
		"a log of other bytes": write("tine.db-wal", badLog),
		"not a database":       both(noLog, write("tine.db", bytes.Repeat([]byte("x"), 9000))),
	} {
		t.Run(name, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			if err := os.CopyFS(state, os.DirFS(killed)); err != nil {
				t.Fatal(err)
			}
			harm(t, state)
			before := filesIn(t, state)
			why := refused(t, state)
			for _, want := range []string{"tine.db", "tine state restore", "tine state set-aside"} {
				if !strings.Contains(why, want) {
					t.Errorf("%q lacks %q", why, want)
				}
			}
			if strings.Contains(why, "move it away") {
				t.Errorf("it advises to move it away: %s", why)
			}
			// A command must not make the new database either.
			if _, stderr, code := inFolder(t, state, "token", "new", "eve"); code == 0 || !strings.Contains(stderr, "tine state restore") {
				t.Errorf("exit %d, %s", code, stderr)
			}
			if _, stderr, code := inFolder(t, state, "state", "restore"); code != exitUsage || !strings.Contains(stderr, "--yes") || !strings.Contains(stderr, newer) || !strings.Contains(stderr, gone) || !strings.Contains(stderr, "made after this backup, which are missing: 2\n") {
				t.Errorf("exit %d, %s", code, stderr)
			}
			ok(t, state, "state", "restore", "--dry-run")
			same(t, "after a look", before, filesIn(t, state))
			var res restoreResult
			if err := json.Unmarshal([]byte(ok(t, state, "state", "restore", "--yes", "--json")), &res); err != nil {
				t.Fatal(err)
			}
			if !res.Done || !slices.Equal(res.Back, []string{newer}) || !slices.Equal(res.Closed, []string{gone}) || !slices.Equal(res.Unconfirmed, []string{"alice"}) || len(res.Unreadable) > 0 || res.Missing == nil || *res.Missing != 2 {
				t.Errorf("got %+v", res)
			}
			after := filesIn(t, state)
			for path, content := range before {
				aside := filepath.Join(strings.TrimPrefix(res.SetAside, state+string(filepath.Separator)), path)
				if strings.HasPrefix(path, "tine.db") && !strings.HasSuffix(path, ".backup") {
					if after[aside] != content {
						t.Errorf("%s is not set aside as it was", path)
					}
				} else if after[path] != content && path != sqlite.AccessFile {
					t.Errorf("%s was changed", path)
				}
			}
			ok(t, state, "state", "restore", "--yes") // twice is fine
			stop := gatewayOn(t, state)
			knows(t, state, old, "old")
			knows(t, state, newer, "newer")
			if got := ok(t, state, "session", "list"); strings.Contains(got, gone) {
				t.Errorf("what was closed is back: %s", got)
			}
			if got := ok(t, state, "session", "snapshots"); !strings.Contains(got, "base") {
				t.Errorf("the snapshot is not there: %s", got)
			}
			// The revoked token is in the backup, and must not work silently.
			if _, stderr, code := inFolder(t, state, "status", "--url", gatewayURL(t, state), "--token", token); code == 0 || !strings.Contains(stderr, "confirm") {
				t.Errorf("a token of the backup: exit %d, %s", code, stderr)
			}
			resp, err := http.Get(gatewayURL(t, state) + "/v1/status")
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("a caller without a token gets %s", resp.Status)
			}
			// Neither must a token of a run, which may have been revoked.
			if _, stderr, code := inFolder(t, state, "tools", "--url", gatewayURL(t, state), "--token", further); code == 0 || !strings.Contains(stderr, "unknown or expired") {
				t.Errorf("a run's token of the backup: exit %d, %s", code, stderr)
			}
			ok(t, state, "token", "confirm", "alice")
			ok(t, state, "tools", "--url", gatewayURL(t, state), "--token", token)
			stop()
		})
	}
}

func gatewayURL(t *testing.T, state string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(state, "gateway.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f gatewayFile
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	return f.URL
}

// Without a sound backup the folders alone are enough for all sessions.
func TestStateRestoreWithoutABackup(t *testing.T) {
	state := t.TempDir()
	stop := gatewayOn(t, state)
	id := openWith(t, state, "it")
	stop()
	all, err := sqlite.Backups(filepath.Join(state, backupFolder))
	if err != nil || len(all) == 0 {
		t.Fatalf("there are %v, %v", all, err)
	}
	for _, b := range all {
		if err := os.Truncate(b.Path, 5000); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(databaseOf(state)); err != nil {
		t.Fatal(err)
	}
	if got := ok(t, state, "state", "restore", "--list"); !strings.Contains(got, "not usable") {
		t.Errorf("got %s", got)
	}
	if _, stderr, code := inFolder(t, state, "state", "restore", "--yes", "--from", all[0].Path); code == 0 || !strings.Contains(stderr, "can't be restored") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	// One that was killed leaves this.
	if err := os.MkdirAll(filepath.Join(state, restoringPlace), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, restoringPlace, "tine.db"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := beginAside(state, "database", testNow); err != nil {
		t.Fatal(err)
	}
	ok(t, state, "state", "restore", "--yes")
	if aside, err := listDir(filepath.Join(state, asideFolder)); err != nil || len(aside) != 1 {
		t.Errorf("there are %v, %v", aside, err)
	}
	before, err := store.ReadID(state)
	if err != nil {
		t.Fatal(err)
	}
	stop = gatewayOn(t, state)
	knows(t, state, id, "it")
	if _, stderr, code := inFolder(t, state, "state", "restore", "--yes"); code == 0 || !strings.Contains(stderr, "stop the gateway") {
		t.Errorf("with a gateway: exit %d, %s", code, stderr)
	}
	if _, stderr, code := inFolder(t, state, "state", "set-aside", "--yes"); code == 0 || !strings.Contains(stderr, "stop the gateway") {
		t.Errorf("with a gateway: exit %d, %s", code, stderr)
	}
	stop()
	if id, err := store.ReadID(state); err != nil || id != before || id == "" {
		t.Errorf("the id was %s and is %s, %v", before, id, err)
	}
}

func TestStateSetAside(t *testing.T) {
	state := t.TempDir()
	stop := gatewayOn(t, state)
	id := openWith(t, state, "it")
	stop()
	before := filesIn(t, state)
	was, err := store.ReadID(state)
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := inFolder(t, state, "state", "set-aside"); code != exitUsage || !strings.Contains(stderr, "--yes") || !strings.Contains(stderr, "tokens and logins to servers are set aside with it") || strings.Contains(stderr, "ended") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	same(t, "after a look", before, filesIn(t, state))
	// An earlier try was killed when the database was moved.
	dir, err := beginAside(state, "everything", testNow)
	if err != nil {
		t.Fatal(err)
	}
	if err := moveAside(state, dir, "tine.db"); err != nil {
		t.Fatal(err)
	}
	refused(t, state)
	var res setAsideResult
	if err := json.Unmarshal([]byte(ok(t, state, "state", "set-aside", "--yes", "--json")), &res); err != nil || res.Folder != dir || res.Held.Sessions != 1 {
		t.Fatalf("got %+v, %v", res, err)
	}
	same(t, "set aside", before, filesIn(t, res.Folder))
	stop = gatewayOn(t, state)
	if got := ok(t, state, "session", "list"); strings.Contains(got, id) {
		t.Errorf("it did not begin anew: %s", got)
	}
	stop()
	if now, err := store.ReadID(state); err != nil || now == was {
		t.Errorf("the id is still %s, %v", now, err)
	}
	// And back again.
	if err := os.MkdirAll(filepath.Join(state, "instances", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := inFolder(t, state, "state", "set-aside", "--yes"); code != 0 || !strings.Contains(stderr, "sandboxes and containers of 1 instance that still run are ended first") || !strings.Contains(stderr, "no token of it works any more") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	inside, err := listDir(res.Folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range inside {
		if err := os.Rename(path, filepath.Join(state, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	stop = gatewayOn(t, state)
	knows(t, state, id, "it")
	stop()
}

// A database of another folder is not served with the content of this one.
func TestStateOfAnotherGateway(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, state := range []string{a, b} {
		stop := gatewayOn(t, state)
		openWith(t, state, "it")
		stop()
	}
	db, err := os.ReadFile(databaseOf(a))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(databaseOf(b), db, 0o600); err != nil {
		t.Fatal(err)
	}
	if why := refused(t, b); !strings.Contains(why, "tine state restore") || !strings.Contains(why, "gw_") {
		t.Errorf("got %s", why)
	}
	ok(t, b, "state", "restore", "--yes")
	gatewayOn(t, b)()
}
