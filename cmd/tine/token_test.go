package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
)

// inFolder runs a command on a state folder without a gateway.
func inFolder(t *testing.T, state string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	tc := newTestCLI(t, args...)
	tc.env["TINE_STATE"] = state
	code = tc.cli.run(t.Context())
	return tc.out.String(), tc.err.String(), code
}

func keptTokens(t *testing.T, state string) []store.Token {
	t.Helper()
	db := sqlitetest.Open(t, state)
	defer db.Close()
	all, err := db.Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A gateway on a public address wants a token before it starts.
func TestTokensWithoutGateway(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	stdout, stderr, code := inFolder(t, state, "token", "list")
	if code != 0 || stdout != "" || !strings.Contains(stderr, "tine token new") {
		t.Errorf("empty: exit %d, %q, %q", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(state, "tine.db")); err == nil {
		t.Error("listing made a database")
	}
	stdout, stderr, code = inFolder(t, state, "token", "new", "alice", "--role", "operator", "--expires", "90d")
	token := strings.TrimSuffix(stdout, "\n")
	if code != 0 || token == "" || strings.ContainsAny(token, " \n") || strings.Contains(stderr, token) {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	for _, want := range []string{state, "first one", identity.HashToken(token), "operator until 2027-02-13T12:00:00Z"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q lacks %q", stderr, want)
		}
	}
	kept := keptTokens(t, state)
	if len(kept) != 1 || kept[0].Name != "alice" || kept[0].Hash != identity.HashToken(token) || kept[0].Role != "operator" ||
		!kept[0].Created.Equal(testNow) || !kept[0].Expires.Equal(testNow.AddDate(0, 0, 90)) {
		t.Errorf("kept %+v", kept)
	}
	if _, stderr, code = inFolder(t, state, "token", "new", "alice"); code != exitUsage || !strings.Contains(stderr, "already") {
		t.Errorf("again: exit %d, %q", code, stderr)
	}
	if _, stderr, code = inFolder(t, state, "token", "new", "no name"); code != exitUsage || !strings.Contains(stderr, "letters") {
		t.Errorf("bad name: exit %d, %q", code, stderr)
	}
	stdout, stderr, code = inFolder(t, state, "token", "new", "ci", "--json")
	var made createdToken
	if err := json.Unmarshal([]byte(stdout), &made); err != nil || code != 0 || made.Name != "ci" || made.Role != "user" ||
		made.Hash != identity.HashToken(made.Secret) || strings.Contains(stderr, "first one") {
		t.Errorf("exit %d, %v, %q, %q", code, err, stdout, stderr)
	}
	stdout, _, code = inFolder(t, state, "token", "list")
	if code != 0 || !strings.Contains(stdout, "alice  operator") || !strings.Contains(stdout, "ci     user") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	if _, stderr, code = inFolder(t, state, "token", "rotate", "alce"); code != exitUsage || !strings.Contains(stderr, "did you mean alice?") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	stdout, stderr, code = inFolder(t, state, "token", "rotate", "alice")
	if next := strings.TrimSuffix(stdout, "\n"); code != 0 || next == token || strings.Contains(stderr, next) {
		t.Errorf("rotated: exit %d, %q, %q", code, stdout, stderr)
	} else if kept := keptTokens(t, state); kept[0].Hash != identity.HashToken(next) || kept[0].Role != "operator" || !kept[0].Expires.Equal(testNow.AddDate(0, 0, 90)) {
		t.Errorf("kept %+v", kept)
	}
	if _, stderr, code = inFolder(t, state, "token", "revoke", "alce"); code != exitUsage || !strings.Contains(stderr, "did you mean alice?") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if _, stderr, code = inFolder(t, state, "token", "revoke", "ci"); code != 0 || strings.Contains(stderr, "no token is left") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if _, stderr, code = inFolder(t, state, "token", "revoke", "alice"); code != 0 || !strings.Contains(stderr, "no token is left") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if kept := keptTokens(t, state); len(kept) != 0 {
		t.Errorf("kept %+v", kept)
	}
}

// A folder that another process owns is not written behind its back, and a
// gateway that died and left its file is no gateway.
func TestTokensOfAFolderWithAnOwner(t *testing.T) {
	state := t.TempDir()
	if err := writeGatewayFile(state, gatewayFile{URL: "http://127.0.0.1:1", PID: 4711}); err != nil {
		t.Fatal(err)
	}
	release, err := store.Lock(state)
	if err != nil {
		t.Fatal(err)
	}
	_, stderr, code := inFolder(t, state, "token", "new", "alice")
	release()
	if code != exitFailed || !strings.Contains(stderr, "process") || !strings.Contains(stderr, "--url") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if stdout, stderr, code := inFolder(t, state, "token", "new", "alice"); code != 0 || stdout == "" {
		t.Errorf("exit %d, %q", code, stderr)
	}
	// One that was named is meant and no other.
	if _, stderr, code := inFolder(t, state, "token", "list", "--url", "http://127.0.0.1:1"); code != exitFailed || !strings.Contains(stderr, "no gateway at") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// A token that needs no confirmation is told apart from one that was confirmed.
func TestConfirmOfAConfirmedToken(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	inFolder(t, state, "token", "new", "alice")
	if stdout, stderr, code := inFolder(t, state, "token", "confirm", "alice"); code != 0 || stdout != "alice: needs no confirmation\n" {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if stdout, _, code := inFolder(t, state, "token", "confirm", "alice", "--json"); code != 0 || !strings.Contains(stdout, `"confirmed": []`) {
		t.Errorf("exit %d, %q", code, stdout)
	}
}

// Commands at once wait for each other: each makes its token, and of two with one name
// the second is told so.
func TestTokensAtOnce(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	var wg sync.WaitGroup
	var made, refused atomic.Int32
	for i := range 8 {
		wg.Go(func() {
			_, stderr, code := inFolder(t, state, "token", "new", fmt.Sprintf("ci%d", i/2))
			switch {
			case code == 0:
				made.Add(1)
			case code == exitUsage && strings.Contains(stderr, "already; replace it with `tine token rotate ci"):
				refused.Add(1)
			default:
				t.Errorf("exit %d, %q", code, stderr)
			}
		})
	}
	wg.Wait()
	if made.Load() != 4 || refused.Load() != 4 || len(keptTokens(t, state)) != 4 {
		t.Errorf("%d were made, %d refused, %d kept; want 4 of each", made.Load(), refused.Load(), len(keptTokens(t, state)))
	}
}

func TestTokensOfTheGatewayOfTheFolder(t *testing.T) {
	f := world()
	f.tokens = func() (any, *api.Error) { return api.TokenList{}, nil }
	state := t.TempDir()
	if err := writeGatewayFile(state, gatewayFile{URL: f.start(t), PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := inFolder(t, state, "token", "new", "kim")
	if code != 0 || stdout != "tine_secret\n" || !strings.Contains(stderr, "first one") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(state, "tine.db")); err == nil {
		t.Error("the folder of a running gateway was written")
	}
}
