//go:build unix

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// newToken makes a token by the command line, which prints it alone.
func (g *gateway) newToken(t testing.TB, args ...string) string {
	t.Helper()
	out, err := g.tine(t.Context(), append([]string{"token", "new"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^tine_[A-Za-z0-9_-]{43}\n$`).MatchString(out) {
		t.Fatalf("tine token new printed %q", out)
	}
	return strings.TrimSpace(out)
}

func (g *gateway) status(t testing.TB, method, path string, header http.Header, body string) int {
	t.Helper()
	resp, _ := do(t, method, g.url+path, header, body)
	return resp.StatusCode
}

// wantAbsent looks for secrets in every file below a folder, and for files that
// others may read.
func wantAbsent(t *testing.T, dir string, secrets ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if !e.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, s := range secrets {
			if strings.Contains(string(data), s) {
				t.Errorf("%s holds %s...", path, s[:9])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ownAddress is an address of this machine that others reach it by.
func ownAddress(t testing.TB) string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String()
		}
	}
	return ""
}

// TestFirstToken starts a gateway on every address: not without a token, and
// with one that was made before it ever ran.
func TestFirstToken(t *testing.T) {
	t.Parallel()
	const config = "servers:\n  clock: {builtin: time}\n"
	g := newGateway(t, config)
	g.args = append(g.args, "--listen", "0.0.0.0:0")
	if err := g.start(); err == nil || !strings.Contains(err.Error(), "tine token new") {
		t.Fatalf("without a token it says %v", err)
	}
	token := g.newToken(t, "ada")
	if err := g.start(); err == nil || !strings.Contains(err.Error(), "set tls, set public_url") {
		t.Fatalf("without TLS it says %v", err)
	}
	g.writeConfig(t, config+"public_url: https://tine.example.org\n")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1"}
	if own := ownAddress(t); own != "" {
		hosts = append(hosts, own)
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(host string, header http.Header) int {
		resp, _ := do(t, "POST", "http://"+net.JoinHostPort(host, port)+"/mcp", header, listTools)
		return resp.StatusCode
	}
	for _, host := range hosts {
		if s := ask(host, nil); s != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", host, s)
		}
		if s := ask(host, bearer(token)); s != http.StatusOK {
			t.Errorf("%s with the token: %d", host, s)
		}
	}
	// Without its last token all callers are refused, over loopback too: a proxy in
	// front may come from there. Only this machine's own user is admitted.
	if _, err := g.tine(t.Context(), "token", "revoke", "ada"); err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		if s := ask(host, nil); s != http.StatusUnauthorized {
			t.Errorf("%s after the last token was revoked: %d", host, s)
		}
		if s := ask(host, bearer(token)); s != http.StatusUnauthorized {
			t.Errorf("%s with the token that was revoked: %d", host, s)
		}
	}
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err == nil || !strings.Contains(err.Error(), "tine token new") {
		t.Fatalf("after the last token was revoked it says %v", err)
	}
}

// TestLastTokenBehindAProxy revokes the last token of a gateway that others
// reach through a proxy, which itself comes over loopback.
func TestLastTokenBehindAProxy(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "public_url: https://tine.example.org\nservers:\n  clock: {builtin: time}\n")
	if err := g.start(); err == nil || !strings.Contains(err.Error(), "token") {
		t.Fatalf("without a token it says %v", err)
	}
	token := g.newToken(t, "ada")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	public := http.Header{"Host": {"tine.example.org"}}
	if s := g.status(t, "POST", "/mcp", public, listTools); s != http.StatusUnauthorized {
		t.Errorf("without a token: %d", s)
	}
	with := bearer(token)
	with.Set("Host", "tine.example.org")
	if s := g.status(t, "POST", "/mcp", with, listTools); s != http.StatusOK {
		t.Errorf("with the token: %d", s)
	}
	if _, err := g.tine(t.Context(), "token", "revoke", "ada"); err != nil {
		t.Fatal(err)
	}
	if s := g.status(t, "POST", "/mcp", public, listTools); s != http.StatusUnauthorized {
		t.Errorf("after the last token was revoked all callers are admitted through the proxy: %d", s)
	}
	if s := g.status(t, "PATCH", "/v1/servers/clock", public, `{"enabled":false}`); s != http.StatusUnauthorized {
		t.Errorf("after the last token was revoked all callers are operators through the proxy: %d", s)
	}
}

// TestLastTokenAndAnyOrigin revokes the last token of a gateway that lets pages of
// every origin call it, which is safe only as long as they have to know one.
func TestLastTokenAndAnyOrigin(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "cors: {origins: [\"*\"]}\nservers:\n  clock: {builtin: time}\n")
	if err := g.start(); err == nil {
		t.Fatal("without a token it starts")
	}
	token := g.newToken(t, "ada")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	page := http.Header{"Origin": {"https://page.example"}}
	with := bearer(token)
	with.Set("Origin", "https://page.example")
	if s := g.status(t, "POST", "/mcp", with, listTools); s != http.StatusOK {
		t.Errorf("a page with the token: %d", s)
	}
	if _, err := g.tine(t.Context(), "token", "revoke", "ada"); err != nil {
		t.Fatal(err)
	}
	if s := g.status(t, "PATCH", "/v1/servers/clock", page, `{"enabled":false}`); s != http.StatusUnauthorized && s != http.StatusForbidden {
		t.Errorf("after the last token was revoked every page is an operator: %d", s)
	}
}

// TestTokensAtRunTime makes, lists and revokes tokens of a running gateway, and
// looks for them in all it keeps.
func TestTokensAtRunTime(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "log: {level: debug}\nauth:\n  tokens: [{name: fixed, token: fixed-fixed-fixed-fixed}]\nservers:\n  clock: {builtin: time}\n")
	var tokens []string
	for i := range 3 {
		name := fmt.Sprint("user", i)
		token := g.newToken(t, name)
		tokens = append(tokens, token)
		if s := g.status(t, "POST", "/mcp", bearer(token), listTools); s != http.StatusOK {
			t.Errorf("%s: a token that was just made: %d", name, s)
		}
	}
	if _, err := g.tine(t.Context(), "token", "new", "user1"); err == nil || !strings.Contains(err.Error(), "`tine token rotate user1 --state ") {
		t.Errorf("a name twice: %v", err)
	}
	if _, err := g.tine(t.Context(), "token", "new", "fixed"); err == nil {
		t.Error("a name that the config has was given again")
	}
	short := g.newToken(t, "short", "--expires", "3s")
	tokens = append(tokens, short)
	if s := g.status(t, "GET", "/v1/servers", bearer(short), ""); s != http.StatusOK {
		t.Errorf("a token that expires soon: %d", s)
	}
	out, err := g.tine(t.Context(), "token", "list", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Tokens []struct {
			Name, Role string
			Config     bool
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Tokens) != 5 || !list.Tokens[0].Config || list.Tokens[1].Role != "user" {
		t.Errorf("listed %s", out)
	}
	plain, err := g.tine(t.Context(), "token", "list")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range append(tokens, "fixed-fixed-fixed-fixed") {
		if strings.Contains(out+plain, secret) {
			t.Errorf("a list shows a token: %s%s", out, plain)
		}
	}
	if _, err := g.tine(t.Context(), "token", "revoke", "user1"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{http.StatusOK, http.StatusUnauthorized, http.StatusOK} {
		if s := g.status(t, "POST", "/mcp", bearer(tokens[i]), listTools); s != want {
			t.Errorf("user%d after user1 was revoked: %d, want %d", i, s, want)
		}
	}
	if _, err := g.tine(t.Context(), "token", "revoke", "fixed"); err == nil || !strings.Contains(err.Error(), "auth.tokens") {
		t.Errorf("revoking a token of the config: %v", err)
	}
	if err := eventually(func() error {
		if s := g.status(t, "GET", "/v1/servers", bearer(short), ""); s != http.StatusUnauthorized {
			return fmt.Errorf("status %d", s)
		}
		return nil
	}); err != nil {
		t.Errorf("a token never expired: %v", err)
	}
	wantAbsent(t, g.state(), append(tokens, "fixed-fixed-fixed-fixed")...)

	// They are there after a crash, and then the folder is used as it is.
	g.kill()
	late := g.newToken(t, "late", "--role", "viewer")
	if _, err := g.tine(t.Context(), "token", "revoke", "user2"); err != nil {
		t.Fatal(err)
	}
	wantAbsent(t, g.state(), append(tokens, late)...)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{tokens[0]: 200, tokens[1]: 401, tokens[2]: 401, late: 200, short: 401} {
		if s := g.status(t, "POST", "/mcp", bearer(token), listTools); s != want {
			t.Errorf("after a restart: %d, want %d", s, want)
		}
	}
	log, err := os.ReadFile(g.logPath())
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range append(tokens, late) {
		if strings.Contains(string(log), secret) {
			t.Error("a token is in the log")
		}
	}
}

// TestRoles checks what each role may do beside using tools.
func TestRoles(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n  clock: {builtin: time}\n  web: {url: \"http://127.0.0.1:1/\", auth: {type: login}}\n")
	owner := map[string]http.Header{}
	for _, role := range []string{"user", "viewer", "operator"} {
		owner[role] = bearer(g.newToken(t, role, "--role", role))
	}
	// A call of each: viewers see all of them, users their own.
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"clock__get_current_time","arguments":{"timezone":"Europe/Vienna"}}}`
	ids := map[string]string{}
	for role, who := range owner {
		if s := g.status(t, "POST", "/mcp", who, call); s != http.StatusOK {
			t.Fatalf("a call as %s: %d", role, s)
		}
		var list struct {
			Calls []struct{ ID, Principal string }
		}
		_, body := do(t, "GET", g.url+"/v1/calls?principal="+role, who, "")
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Calls) != 1 || list.Calls[0].Principal != role {
			t.Fatalf("the calls of %s: %s (%v)", role, body, err)
		}
		ids[role] = list.Calls[0].ID
	}
	for _, tt := range []struct {
		method, path, body string
		want               [3]int // of user, viewer, operator
	}{
		{"GET", "/v1/servers", "", [3]int{200, 200, 200}},
		{"GET", "/v1/servers/clock", "", [3]int{200, 200, 200}},
		{"GET", "/v1/tools", "", [3]int{200, 200, 200}},
		{"GET", "/v1/status", "", [3]int{200, 200, 200}},
		{"GET", "/metrics", "", [3]int{403, 200, 200}},
		{"GET", "/v1/servers/clock/logs", "", [3]int{403, 403, 200}},
		{"GET", "/v1/calls/" + ids["user"], "", [3]int{200, 200, 200}},
		{"GET", "/v1/calls/" + ids["operator"], "", [3]int{404, 200, 200}},
		{"POST", "/v1/calls/" + ids["viewer"] + "/replay", "", [3]int{404, 200, 200}},
		{"POST", "/v1/calls/" + ids["operator"] + "/replay", "", [3]int{404, 409, 200}},
		{"PATCH", "/v1/servers/clock", `{"enabled":true}`, [3]int{403, 403, 200}},
		{"PATCH", "/v1/servers/clock", `{"set":{"timeout":"1m"}}`, [3]int{403, 403, 200}},
		{"PATCH", "/v1/servers/nosuch", `{"enabled":true}`, [3]int{403, 403, 404}},
		{"GET", "/v1/tokens", "", [3]int{403, 403, 200}},
		{"POST", "/v1/tokens", `{"name":"more","role":"operator"}`, [3]int{403, 403, 200}},
		{"DELETE", "/v1/tokens/more", "", [3]int{403, 403, 200}},
		{"DELETE", "/v1/servers/web/login", "", [3]int{403, 403, 200}},
	} {
		for i, role := range []string{"user", "viewer", "operator"} {
			if resp, body := do(t, tt.method, g.url+tt.path, owner[role], tt.body); resp.StatusCode != tt.want[i] {
				t.Errorf("%s %s as %s: %d, want %d: %s", tt.method, tt.path, role, resp.StatusCode, tt.want[i], body)
			}
		}
	}
	if _, body := do(t, "GET", g.url+"/v1/calls", owner["user"], ""); strings.Contains(body, `"principal":"viewer"`) || strings.Contains(body, `"principal":"operator"`) {
		t.Errorf("a user sees the calls of others: %s", body)
	}
	if _, body := do(t, "GET", g.url+"/v1/calls?principal=viewer", owner["user"], ""); strings.Contains(body, `"principal":"viewer"`) {
		t.Errorf("a user sees the calls of others: %s", body)
	}
}
