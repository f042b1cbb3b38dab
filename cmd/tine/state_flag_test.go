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

// Commands that messages advise have the flags that the one had which prints them,
// also where the message is the gateway's.
func TestAdviceWorksAsPrinted(t *testing.T) {
	for _, tt := range []struct {
		flags         globalFlags
		message, want string
	}{
		{globalFlags{state: "/srv/tine"}, "no; see tine session list --closed", "no; see tine session list --closed --state /srv/tine"},
		{globalFlags{state: "/srv/tine"}, "no (it is off; run: tine login x) (refused)", "no (it is off; run: tine login x --state /srv/tine) (refused)"},
		{globalFlags{state: "/srv/tine"}, "run: tine login x (refused; try again)", "run: tine login x --state /srv/tine (refused; try again)"},
		{globalFlags{state: "/srv/tine"}, "`tine a` does, `tine b x` too", "`tine a --state /srv/tine` does, `tine b x --state /srv/tine` too"},
		{globalFlags{state: "/srv/tine"}, "`tine a --state /srv/tine` does", "`tine a --state /srv/tine` does"},
		{globalFlags{state: "/srv/tine"}, "see tine session open --help", "see tine session open --help"},
		{globalFlags{state: "/srv/tine"}, "tine listens", "tine listens"},
		{globalFlags{url: "http://h:1", tokenFile: "my token"}, "see tine tools", "see tine tools --url http://h:1 --token-file 'my token'"},
		{globalFlags{url: "http://h:1"}, "is `tine serve` running? see tine servers", "is `tine serve` running? see tine servers --url http://h:1"},
		{globalFlags{token: "secret"}, "see tine tools", "see tine tools"},
		{globalFlags{}, "see tine tools", "see tine tools"},
	} {
		c := &cli{flags: tt.flags, lookupEnv: func(string) (string, bool) { return "", false }}
		if got := c.ownAll(tt.message); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.message, got, tt.want)
		}
	}
}

// Hints of commands on a gateway of another state folder lead to that gateway.
func TestHintsNameTheStateFolder(t *testing.T) {
	state := filepath.Join(t.TempDir(), "s6")
	stop := gatewayOn(t, state)
	defer stop()
	id := openWith(t, state, "it")
	ok(t, state, "session", "close", id)
	for _, tt := range []struct{ args, hint string }{
		{"session show ses_000000000000", "tine session list --closed"},
		{"session show 000", "tine session list --closed"},
		{"session show nobody", "tine session list --closed"},
		{"session fork " + id, "`tine session open"},
		{"session fork " + id, "`tine session export " + id},
		{"session open --from none", "tine session snapshots"},
		{"call nothing__here", "tine tools"},
		{"call --session " + id + " memory__read_graph", "`tine session open"},
		{"servers show nothing", "tine servers"},
	} {
		_, stderr, code := inFolder(t, state, append(strings.Fields(tt.args), "--state", state)...)
		if want := tt.hint + " --state " + state; code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("tine %s: exit %d, %q lacks %q", tt.args, code, stderr, want)
		}
	}
}
