package main

import (
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/store/sqlite"
)

// killedCopy copies the state folder of a gateway that runs: what a kill -9 leaves.
func killedCopy(t *testing.T, state string) string {
	t.Helper()
	for {
		to := filepath.Join(t.TempDir(), "state")
		err := os.CopyFS(to, os.DirFS(state))
		if err == nil {
			return to
		}
		if !errors.Is(err, fs.ErrNotExist) { // else the gateway removed a file between its listing and its turn
			t.Fatal(err)
		}
	}
}

func statusOf(t *testing.T, state, path, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, gatewayURL(t, state)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// A log that lost its last transaction looks to SQLite like one whose writer was
// killed. Where that transaction revoked a token, the gateway must not start as if
// the token had never been revoked.
func TestStateLogLosesARevokedToken(t *testing.T) {
	made := t.TempDir()
	stop := gatewayOn(t, made)
	id := openWith(t, made, "it")
	ok(t, made, "token", "new", "bob")
	token := strings.TrimSpace(ok(t, made, "token", "new", "alice"))
	stop()
	stop = gatewayOn(t, made) // the token is in the database now, and what comes in its log
	id2 := openWith(t, made, "it2")
	before, err := os.ReadFile(filepath.Join(made, sqlite.AccessFile))
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := os.Stat(databaseOf(made) + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	ok(t, made, "token", "revoke", "alice")
	killed := killedCopy(t, made)
	stop()
	wal, err := os.ReadFile(databaseOf(killed) + "-wal")
	if err != nil || len(wal) < 1<<14 {
		t.Fatalf("there is no log to damage: %d bytes, %v", len(wal), err)
	}
	// Something else may have been written after the revoke, which would show the
	// damage. So the log ends with the first transaction that came since.
	frame := 24 + int64(binary.BigEndian.Uint32(wal[8:]))
	end := earlier.Size()
	for commits := false; !commits; end += frame {
		commits = binary.BigEndian.Uint32(wal[end+4:]) != 0
	}
	flipped := slices.Clone(wal[:end])
	flipped[end-100] ^= 1
	for name, harm := range map[string]func(db string) error{
		"last frame flipped": func(db string) error { return os.WriteFile(db+"-wal", flipped, 0o600) },
		"cut to half":        func(db string) error { return os.Truncate(db+"-wal", int64(len(wal)/2)) },
		"emptied":            func(db string) error { return os.Truncate(db+"-wal", 0) },
		"removed": func(db string) error {
			_ = os.Remove(db + "-shm")
			return os.Remove(db + "-wal")
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := killedCopy(t, killed)
			if err := harm(databaseOf(state)); err != nil {
				t.Fatal(err)
			}
			files := filesIn(t, state)
			why := refused(t, state)
			for _, want := range []string{"tine.db", "older", "tine state restore --from tine.db", "tine state set-aside"} {
				if !strings.Contains(why, want) {
					t.Errorf("%q lacks %q", why, want)
				}
			}
			if _, stderr, code := inFolder(t, state, "token", "list"); code == 0 || !strings.Contains(stderr, "tine state restore") {
				t.Errorf("exit %d, %s", code, stderr)
			}
			same(t, "after a refused start", files, filesIn(t, state))
			ok(t, state, "state", "restore", "--from", "tine.db", "--yes")
			stop := gatewayOn(t, state)
			defer stop()
			if got := statusOf(t, state, "/v1/status", token); got != http.StatusUnauthorized {
				t.Errorf("the revoked token gets %d", got)
			}
			if got := statusOf(t, state, "/v1/status", ""); got != http.StatusUnauthorized {
				t.Errorf("no token gets %d", got)
			}
			knows(t, state, id, "it")
			knows(t, state, id2, "it2")
		})
	}
	// A death after the database was written and before the file was: the revoke was
	// not answered yet, and holds.
	t.Run("killed between the two writes", func(t *testing.T) {
		state := killedCopy(t, killed)
		for name, b := range map[string][]byte{sqlite.AccessFile: before, sqlite.AccessFile + sqlite.PartSuffix: []byte("{")} {
			if err := os.WriteFile(filepath.Join(state, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		stop := gatewayOn(t, state)
		if got := statusOf(t, state, "/v1/status", token); got != http.StatusUnauthorized {
			t.Errorf("the revoked token gets %d", got)
		}
		after, err := os.ReadFile(filepath.Join(state, sqlite.AccessFile))
		if err != nil || string(after) == string(before) {
			t.Errorf("the file still says %s, %v", after, err)
		}
		stop()
	})
	t.Run("the file is damaged", func(t *testing.T) {
		state := killedCopy(t, killed)
		path := filepath.Join(state, sqlite.AccessFile)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), `"changes":3`, `"changes":1`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if why := refused(t, state); !strings.Contains(why, path) || !strings.Contains(why, "tine state restore --from tine.db") {
			t.Errorf("got %s", why)
		}
		ok(t, state, "state", "restore", "--from", "tine.db", "--yes")
		gatewayOn(t, state)()
	})
	t.Run("the file is missing", func(t *testing.T) {
		state := killedCopy(t, killed)
		path := filepath.Join(state, sqlite.AccessFile)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if why := refused(t, state); !strings.Contains(why, path+" is missing") || !strings.Contains(why, "tine state restore --from tine.db") {
			t.Errorf("got %s", why)
		}
		if _, stderr, code := inFolder(t, state, "state", "restore", "--from", "tine.db", "--yes"); code != 0 || !strings.Contains(stderr, "how many is not known") {
			t.Errorf("exit %d, %s", code, stderr)
		}
		gatewayOn(t, state)()
	})
	// One of an earlier version has no such file, and no counter.
	t.Run("an earlier version", func(t *testing.T) {
		state := killedCopy(t, killed)
		if err := os.Remove(filepath.Join(state, sqlite.AccessFile)); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite3", filepath.Join(state, "tine.db"))
		if err == nil {
			_, err = db.Exec("DELETE FROM meta WHERE key = 'access_changes'")
			err = errors.Join(err, db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		gatewayOn(t, state)()
		if _, err := os.Stat(filepath.Join(state, sqlite.AccessFile)); err != nil {
			t.Error(err)
		}
	})
}

// A database that is gone together with all backups must not open a gateway that
// had tokens to all callers on the machine.
func TestStateRestoreWithoutTokens(t *testing.T) {
	made := t.TempDir()
	stop := gatewayOn(t, made)
	openWith(t, made, "it")
	ok(t, made, "token", "new", "alice")
	killed := killedCopy(t, made)
	stop()
	for _, name := range append(databaseNames(), backupFolder) {
		if err := os.RemoveAll(filepath.Join(killed, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, opens := range map[string][]string{
		"a new token": {"token", "new", "bob"},
		"confirmed":   {"token", "confirm", "--all"},
	} {
		for _, where := range []string{"running", "stopped"} {
			t.Run(name+", "+where, func(t *testing.T) {
				state := killedCopy(t, killed)
				_, stderr, code := inFolder(t, state, "state", "restore", "--yes")
				if code != 0 || !strings.Contains(stderr, "the folders do not have, which are missing: 1\n") || !strings.Contains(stderr, "tine token new") || !strings.Contains(stderr, "tine token confirm --all") {
					t.Errorf("exit %d, %s", code, stderr)
				}
				// Again: what the first one wrote must not make it forget.
				var res restoreResult
				if err := json.Unmarshal([]byte(ok(t, state, "state", "restore", "--from", "folders", "--yes", "--json")), &res); err != nil || !res.TokensLost {
					t.Errorf("got %+v, %v", res, err)
				}
				stop := gatewayOn(t, state)
				for _, path := range []string{"/v1/sessions", "/mcp"} {
					if got := statusOf(t, state, path, ""); got != http.StatusUnauthorized {
						t.Errorf("%s without a token gets %d", path, got)
					}
				}
				if _, stderr, code := inFolder(t, state, "token", "list"); code != 0 || !strings.Contains(stderr, "tine token confirm --all") {
					t.Errorf("exit %d, %s", code, stderr)
				}
				if where == "stopped" {
					stop()
				}
				out := strings.TrimSpace(ok(t, state, opens...))
				if where == "stopped" {
					stop = gatewayOn(t, state)
				}
				defer stop()
				token, want := "", http.StatusOK
				if opens[1] == "new" {
					token = out
					if got := statusOf(t, state, "/v1/sessions", ""); got != http.StatusUnauthorized {
						t.Errorf("no token gets %d", got)
					}
				}
				if got := statusOf(t, state, "/v1/sessions", token); got != want {
					t.Errorf("then it gets %d", got)
				}
			})
		}
	}
}
