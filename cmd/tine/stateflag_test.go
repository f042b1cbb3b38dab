package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/telemetry"
)

func TestStateFlag(t *testing.T) {
	env := map[string]string{"HOME": "/home/ann"}
	c := &cli{lookupEnv: func(key string) (string, bool) { return env[key], env[key] != "" }}
	home := defaultStateDir(runtime.GOOS, c.getenv)
	for state, want := range map[string]string{
		home:               "",
		"/srv/tine":        "--state /srv/tine",
		"/srv/my state":    "--state '/srv/my state'",
		"/srv/it's":        `--state '/srv/it'\''s'`,
		"/srv/$HOME/`x`":   "--state '/srv/$HOME/`x`'",
		"/srv/tine/~old":   "--state /srv/tine/~old",
		`/srv/back\slash`:  `--state '/srv/back\slash'`,
		"/srv/tine\nother": "--state '/srv/tine\nother'",
	} {
		if got := c.stateFlag(state); got != want {
			t.Errorf("%q: %s, not %s", state, got, want)
		}
	}
}

// What a refused start advises is about the folder that it was about.
func TestAdviceNamesTheStateFolder(t *testing.T) {
	state := filepath.Join(t.TempDir(), "s5")
	stop := gatewayOn(t, state)
	openWith(t, state, "it")
	ok(t, state, "token", "new", "ann")
	stop()
	why := func(cfg *config.Config) string {
		t.Helper()
		s, err := newService(t.Context(), serviceOptions{Config: cfg, State: state, StateFlag: stateFlag(state), Listen: true, Version: "test", Redact: telemetry.NewRedactor(), Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			s.Close()
			t.Fatal("it started")
		}
		return err.Error()
	}
	wants := func(what, got string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(got, want+" --state "+state) {
				t.Errorf("%s: %q lacks %q", what, got, want)
			}
		}
	}
	db, err := os.ReadFile(databaseOf(state))
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(databaseOf(state), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(nil)
	wants("empty", why(config.Default()), "`tine state restore", "`tine state set-aside")
	put(bytes.Repeat([]byte("x"), 9000))
	wants("damaged", why(config.Default()), "`tine state restore", "`tine state set-aside")
	put(db)
	if err := os.WriteFile(filepath.Join(state, "id"), []byte("gw_other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wants("another's", why(config.Default()), "`tine state restore")
	if err := os.Remove(filepath.Join(state, "id")); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.WriteAccess(state, sqlite.Access{Changes: 99}); err != nil {
		t.Fatal(err)
	}
	wants("older", why(config.Default()), "`tine state restore --from tine.db", "`tine state set-aside")
	_, stderr, code := inFolder(t, state, "state", "restore", "--from", "tine.db", "--yes", "--state", state)
	if code != 0 {
		t.Fatal(stderr)
	}
	wants("restored", stderr, "tine token list", "tine token confirm --all")
	ok(t, state, "token", "revoke", "ann")
	open := config.Default()
	open.Listen = "0.0.0.0:18170"
	got := why(open)
	wants("exposed", got, "tine token new NAME")
	if !strings.Contains(got, "listen on 127.0.0.1:18170") {
		t.Errorf("%q advises another port", got)
	}
}

// A look at a restore from the database itself says what is in it.
func TestRestoreFromADamagedLog(t *testing.T) {
	made := t.TempDir()
	stop := gatewayOn(t, made)
	openWith(t, made, "it")
	ok(t, made, "token", "new", "ann")
	stop()
	stop = gatewayOn(t, made)
	openWith(t, made, "newer")
	state := killedCopy(t, made)
	stop()
	wal, err := os.ReadFile(databaseOf(state) + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	wal[32+24+50] ^= 1
	if err := os.WriteFile(databaseOf(state)+"-wal", wal, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(state, "sessions", "shared", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	var res restoreResult
	if err := json.Unmarshal([]byte(ok(t, state, "state", "restore", "--from", "tine.db", "--dry-run", "--json")), &res); err != nil {
		t.Fatal(err)
	}
	if res.From.Sessions != 1 || res.From.Tokens != 1 || len(res.Back) != 1 {
		t.Errorf("got %+v", res)
	}
	inv, err := takeInventory(state)
	if err != nil || inv.Sessions != 2 || inv.States != 1 {
		t.Errorf("there are %+v, %v", inv, err)
	}
}
