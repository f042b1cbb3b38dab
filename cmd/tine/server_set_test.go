package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// patched runs a command and returns what the gateway was told.
func patched(t *testing.T, change func(*testCLI), args ...string) (api.ServerPatch, string, int) {
	t.Helper()
	f := world()
	var got api.ServerPatch
	patch := f.patch
	f.patch = func(id string, p api.ServerPatch) (any, *api.Error) {
		got = p
		return patch(id, p)
	}
	tc := newTestCLI(t, args...)
	tc.env["TINE_URL"] = f.start(t)
	if change != nil {
		change(tc)
	}
	code := tc.cli.run(t.Context())
	return got, tc.out.String() + tc.err.String(), code
}

func TestSetBuildsJSON(t *testing.T) {
	for _, tt := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"timeout=10s", "policy.retry.attempts=5", "policy.breaker.failures=0", "journal=meta", "policy.retry.pause=1s"},
			`{"timeout":"10s","policy":{"retry":{"attempts":5,"pause":"1s"},"breaker":{"failures":0}},"journal":"meta"}`},
		{[]string{"policy.rate.calls=2.50"}, `{"policy":{"rate":{"calls":2.50}}}`},
		{[]string{"auth.client_id=12345"}, `{"auth":{"client_id":"12345"}}`},
		{[]string{"auth.scopes=[a, b:c]", "tools.deny=x_*,y"}, `{"auth":{"scopes":["a","b:c"]},"tools":{"deny":["x_*","y"]}}`},
		{[]string{`tools.allow=["a,b"]`, "policy.cache.tools=[]"}, `{"tools":{"allow":["a,b"]},"policy":{"cache":{"tools":[]}}}`},
		{[]string{"tools.rename.a.b=c=d"}, `{"tools":{"rename":{"a.b":"c=d"}}}`},
		{[]string{"new.flag=true", "new.number=-1e3", "new.text=10s", "new.list=[a,b]", "new.empty="}, `{"new":{"flag":true,"number":-1e3,"text":"10s","list":["a","b"],"empty":""}}`},
		{[]string{`policy.retry:={"attempts": 12345678901234567890}`}, `{"policy":{"retry":{"attempts":12345678901234567890}}}`},
	} {
		got, said, code := patched(t, nil, append([]string{"servers", "set", "files"}, tt.pairs...)...)
		if code != 0 || compactJSON(got.Set) != tt.want {
			t.Errorf("%q: exit %d, %s, said %s; want %s", tt.pairs, code, got.Set, said, tt.want)
		}
	}
}

// Secrets come from a prompt or standard input and are never printed.
func TestSecrets(t *testing.T) {
	const key = `Bearer "k\3y"`
	quoted, _ := json.Marshal(key)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"servers", "header", "web", "X-Api.Key"}, `{"headers":{"X-Api.Key":` + string(quoted) + `}}`},
		{[]string{"servers", "secret", "web"}, `{"auth":{"client_secret":` + string(quoted) + `}}`},
	} {
		piped := func(tc *testCLI) { tc.stdin = strings.NewReader(key + "\r\n") }
		typed := func(tc *testCLI) {
			tc.inTerminal, tc.stdin = true, nil
			tc.readHidden = func(context.Context) ([]byte, error) { return []byte(key), nil }
		}
		for _, change := range []func(*testCLI){piped, typed} {
			got, said, code := patched(t, change, tt.args...)
			if code != 0 || string(got.Set) != tt.want || strings.Contains(said, "Bearer") {
				t.Errorf("%q: exit %d, %s, said %q", tt.args, code, got.Set, said)
			}
		}
	}
	// A key has lines, and comes whole.
	const pem = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
	quoted, _ = json.Marshal(pem)
	args := []string{"servers", "secret", "web", "--key", "private_key"}
	got, said, code := patched(t, func(tc *testCLI) { tc.stdin = strings.NewReader(pem + "\n") }, args...)
	if want := `{"auth":{"private_key":` + string(quoted) + `}}`; code != 0 || string(got.Set) != want || strings.Contains(said, "MIIE") {
		t.Errorf("%q: exit %d, %s, said %q", args, code, got.Set, said)
	}
	got, said, code = patched(t, func(tc *testCLI) { tc.inTerminal, tc.stdin = true, nil }, args...)
	if code != 2 || got.Set != nil || !strings.Contains(said, "run: tine servers secret web --key private_key < key.pem") {
		t.Errorf("%q at a terminal: exit %d, %s, said %q", args, code, got.Set, said)
	}
	for name, change := range map[string]func(*testCLI){
		"two lines": func(tc *testCLI) { tc.stdin = strings.NewReader("a\nX-Evil: b\n") },
		"too much":  func(tc *testCLI) { tc.stdin = strings.NewReader(strings.Repeat("x", maxSecret+1)) },
		"blank":     func(tc *testCLI) { tc.stdin = strings.NewReader(" \n") },
		"closed": func(tc *testCLI) {
			tc.inTerminal = true
			tc.readHidden = func(context.Context) ([]byte, error) { return nil, io.EOF }
		},
	} {
		got, said, code := patched(t, change, "servers", "header", "web", "X-Key")
		if code == 0 || got.Set != nil {
			t.Errorf("%s: exit %d, %s, said %q", name, code, got.Set, said)
		}
	}
}

func TestUnset(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"servers", "unset", "files", "timeout", "policy.retry"}, "timeout policy.retry"},
		{[]string{"servers", "header", "files", "X-Key", "--remove"}, "headers.X-Key"},
		{[]string{"servers", "secret", "files", "--remove"}, "auth.client_secret"},
		{[]string{"servers", "secret", "files", "--key", "private_key", "--remove"}, "auth.private_key"},
	} {
		got, said, code := patched(t, nil, tt.args...)
		if code != 0 || strings.Join(got.Unset, " ") != tt.want || got.Set != nil {
			t.Errorf("%q: exit %d, %+v, %s", tt.args, code, got, said)
		}
	}
}
