//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

const byRefresh = issuertest.Token + ":refresh_token"

// login runs tine login, goes where it sends a person, and comes back as a
// browser would. It returns what the program printed on standard output.
func (g *gateway) login(t testing.TB, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, tineBinary, append(append([]string{"login"}, args...), "--no-browser", "--state", g.state())...)
	cmd.Dir, cmd.Env = g.dir, append(os.Environ(), g.env...)
	var out, said bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	page := ""
	lines := bufio.NewReader(io.TeeReader(stderr, &said))
	for page == "" {
		line, err := lines.ReadString('\n')
		if u := strings.TrimSpace(line); strings.HasPrefix(u, "http://") {
			page = u
		}
		if err != nil {
			break
		}
	}
	if page != "" {
		if err := visit(ctx, page); err != nil {
			t.Error(err)
		}
	}
	_, _ = io.Copy(io.Discard, lines)
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, said.String())
	}
	return out.String(), nil
}

// visit follows redirects to their end, as a browser does.
func visit(ctx context.Context, page string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the login ends at %s: %s", resp.Status, body)
	}
	return err
}

// mustLogin logs in and wants it to work.
func (g *gateway) mustLogin(t testing.TB, want string, args ...string) {
	t.Helper()
	out, err := g.login(t, args...)
	if err != nil || !strings.Contains(out, want) {
		t.Fatalf("tine login printed %q, %v", out, err)
	}
}

// wantsLogin checks that a call is refused with what to do about it.
func wantsLogin(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "run: tine login tickets") || !strings.Contains(err.Error(), `"refused"`) {
		t.Errorf("%s: %v", what, err)
	}
}

// wantsPerson starts an issuer, a server whose people log in there, and a gateway
// that all callers on this machine may use.
func wantsPerson(t *testing.T, kind, more string, o issuertest.Options) (*gateway, *guarded, *issuertest.Issuer) {
	iss := issuertest.New(t, o)
	up := guard(t, iss, kind)
	g := startGateway(t, fmt.Sprintf("log: {level: debug}\nservers:\n  tickets: {%surl: %q, %s}\n", kindYAML(kind), up.url, more))
	return g, up, iss
}

// TestLogin logs a person in to a server that wants one, and keeps the login
// over restarts, crashes and expired tokens until it is ended from either side.
func TestLogin(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"legacy", "modern"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			g, up, iss := wantsPerson(t, kind, "auth: {type: login}", issuertest.Options{Registration: true, Scopes: []string{"tools"}})
			ask := func() (string, error) {
				out, err := g.tine(t.Context(), "call", "tickets__whoami")
				return strings.TrimSpace(out), err
			}
			works := func(when string) {
				t.Helper()
				if got, err := ask(); err != nil || got != "ada" {
					t.Errorf("%s the server saw %q, %v", when, got, err)
				}
			}
			if _, err := ask(); err == nil || !strings.Contains(err.Error(), "tine login tickets") {
				t.Errorf("before the login: %v", err)
			}
			iss.Deny(true)
			if out, err := g.login(t, "tickets"); err == nil || !strings.Contains(err.Error(), "access_denied") {
				t.Errorf("a person who says no: %q %v", out, err)
			}
			iss.Deny(false)
			g.mustLogin(t, "logged in, for all users", "tickets")
			works("after the login")
			visits := iss.Count(issuertest.Authorize)
			if _, err := g.stop(); err != nil {
				t.Fatal(err)
			}
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			works("after a restart")
			g.kill()
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			works("after a crash")
			up.revoke()
			works("with a token that no longer counts")
			if n := iss.Count(byRefresh); n != 1 {
				t.Errorf("the login was renewed %d times", n)
			}
			g.kill() // what was renewed is kept before it is used
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			up.revoke()
			works("with a renewed login after a crash")

			iss.RefuseRefresh(true)
			up.revoke()
			if _, err := ask(); err == nil || !strings.Contains(err.Error(), "run: tine login tickets") {
				t.Errorf("when the renewal is refused: %v", err)
			}
			// The issuer is not asked again for a login that is known to be over.
			before := iss.Count(issuertest.Token)
			for range 5 {
				_, _ = ask()
			}
			if n := iss.Count(issuertest.Token) - before; n > 0 {
				t.Errorf("a login that is over was renewed %d times", n)
			}
			if visits != iss.Count(issuertest.Authorize) {
				t.Error("a user was sent to log in again")
			}
			iss.RefuseRefresh(false)
			g.mustLogin(t, "logged in", "tickets")
			works("after another login")

			if out, err := g.tine(t.Context(), "login", "tickets", "--logout"); err != nil || !strings.Contains(out, "logged out") {
				t.Fatalf("%q %v", out, err)
			}
			asked := len(up.all())
			if _, err := ask(); err == nil || !strings.Contains(err.Error(), "run: tine login tickets") {
				t.Errorf("after the logout: %v", err)
			}
			for _, h := range up.all()[asked:] {
				if h.Get("Authorization") != "" {
					t.Error("after the logout the server was shown a token")
				}
			}
			log, err := os.ReadFile(g.logPath())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(log), "eyJ") {
				t.Error("a token is in the log")
			}
		})
	}
}

// TestLoginOfAKnownClient logs in with a client id that was registered by hand, at
// an issuer without registration, once with a redirect of its own.
func TestLoginOfAKnownClient(t *testing.T) {
	t.Parallel()
	addr, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	fixed := "http://" + addr + "/back/here"
	for name, tt := range map[string]struct{ yaml, redirect string }{
		"any port":       {"auth: {type: login, client_id: known}", "http://127.0.0.1/callback"},
		"with a secret":  {`auth: {type: login, client_id: known, client_secret: "` + clientSecret + `"}`, "http://127.0.0.1/callback"},
		"fixed redirect": {"auth: {type: login, client_id: known, redirect: \"" + fixed + "\"}", fixed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := issuertest.Client{ID: "known", Redirects: []string{tt.redirect}}
			if strings.Contains(tt.yaml, "client_secret") {
				c.Secret = clientSecret
			}
			g, _, iss := wantsPerson(t, "modern", tt.yaml, issuertest.Options{Clients: []issuertest.Client{c}})
			g.mustLogin(t, "logged in", "tickets")
			if out, err := g.tine(t.Context(), "call", "tickets__whoami"); err != nil || strings.TrimSpace(out) != "ada" {
				t.Errorf("%q %v", out, err)
			}
			if n := iss.Count(issuertest.Register); n > 0 {
				t.Errorf("%d clients were registered", n)
			}
		})
	}
	t.Run("without one", func(t *testing.T) {
		t.Parallel()
		g, _, _ := wantsPerson(t, "modern", "auth: {type: login}", issuertest.Options{})
		if _, err := g.login(t, "tickets"); err == nil || !strings.Contains(err.Error(), "servers.tickets.auth.client_id") {
			t.Errorf("an issuer without registration: %v", err)
		}
	})
}

// TestLoginRenewedUnderLoad lets a person's tokens live for seconds. Their
// refresh tokens work once, so two renewals at once would end the login.
func TestLoginRenewedUnderLoad(t *testing.T) {
	t.Parallel()
	g, up, iss := wantsPerson(t, "modern", "auth: {type: login}", issuertest.Options{Registration: true, Lifetime: 6 * time.Second})
	g.mustLogin(t, "logged in", "tickets")
	l := startRush(t, 20, func(ctx context.Context, i int) error {
		got, err := whoami(ctx, g.url+"/mcp/tickets", "", "whoami", i%2 == 0)
		if err == nil && got != "ada" {
			err = fmt.Errorf("the server saw %q", got)
		}
		return err
	})
	l.more(t, 50)
	for range 3 {
		up.revoke()
		l.more(t, 100)
	}
	if err := eventually(func() error {
		if n := iss.Count(byRefresh); n < 5 {
			return fmt.Errorf("%d renewals", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	l.end(t)
	if n := up.executed.Load(); n != l.calls.Load() {
		t.Errorf("the tool ran %d times for %d calls", n, l.calls.Load())
	}
	if n := iss.Count(byRefresh); n > 12 {
		t.Errorf("the login was renewed %d times", n)
	}
}

// TestLoginOfEachPrincipal gives two principals a login of their own each.
func TestLoginOfEachPrincipal(t *testing.T) {
	t.Parallel()
	g, up, iss := wantsPerson(t, "legacy", "auth: {type: login}, credential: per-principal", issuertest.Options{Registration: true})
	ada, bob := g.newToken(t, "ada"), g.newToken(t, "bob")
	ask := func(token string) (string, error) {
		return whoami(t.Context(), g.url+"/mcp", token, "tickets__whoami", true)
	}
	sees := func(when, token, want string) {
		t.Helper()
		if got, err := ask(token); err != nil || got != want {
			t.Errorf("%s the server saw %q, want %q: %v", when, got, want, err)
		}
	}
	refused := func(when, token string) {
		t.Helper()
		before := len(up.all())
		_, err := ask(token)
		wantsLogin(t, when, err)
		for _, h := range up.all()[before:] {
			if h.Get("Authorization") != "" {
				t.Errorf("%s the server was shown a token", when)
			}
		}
	}
	refused("before any login", ada)
	iss.SetSubject("ada-there", nil)
	g.mustLogin(t, "for you alone", "tickets", "--token", ada)
	sees("after ada's login", ada, "ada-there")
	lists := func(token string) bool {
		r, err := post(t.Context(), g.url+"/mcp", bearer(token), listTools)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(names(t, r), "tickets__whoami")
	}
	if !lists(ada) || lists(bob) {
		t.Error("a principal without a login has no list")
	}
	refused("after ada's login, bob", bob)
	// The person at this machine is neither of them.
	if _, err := g.tine(t.Context(), "call", "tickets__whoami"); err == nil || !strings.Contains(err.Error(), "run: tine login tickets") {
		t.Errorf("the machine's own user: %v", err)
	}
	iss.SetSubject("bob-there", nil)
	g.mustLogin(t, "for you alone", "tickets", "--token", bob)
	both := func(when string) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range 30 {
			token, want := ada, "ada-there"
			if i%2 == 0 {
				token, want = bob, "bob-there"
			}
			wg.Go(func() {
				got, err := whoami(t.Context(), g.url+"/mcp/tickets", token, "whoami", i%3 == 0)
				if err != nil || got != want {
					t.Errorf("%s the server saw %q, want %q: %v", when, got, want, err)
				}
			})
		}
		wg.Wait()
	}
	both("at once")
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	both("after a restart")
	for _, token := range []string{ada, bob} {
		// The other's login state is no business of theirs.
		_, body := do(t, "GET", g.url+"/v1/servers/tickets", bearer(token), "")
		if !regexp.MustCompile(`"logged_in":true`).MatchString(body) {
			t.Errorf("its state: %s", body)
		}
	}
	if out, err := g.tine(t.Context(), "login", "tickets", "--logout", "--token", bob); err != nil {
		t.Fatal(out, err)
	}
	refused("after bob's logout, bob", bob)
	sees("after bob's logout", ada, "ada-there")
	up.wantNever(t, ada, bob)
}

// TestSharedLoginIsTheOperators checks who may make a shared login.
func TestSharedLoginIsTheOperators(t *testing.T) {
	t.Parallel()
	g, _, _ := wantsPerson(t, "modern", "auth: {type: login}", issuertest.Options{Registration: true})
	user, operator := g.newToken(t, "ada"), g.newToken(t, "ops", "--role", "operator")
	for _, args := range [][]string{{"tickets", "--token", user}, {"tickets", "--logout", "--token", user}} {
		if _, err := g.login(t, args...); err == nil || !strings.Contains(err.Error(), "operator") {
			t.Errorf("tine login %v: %v", args, err)
		}
	}
	g.mustLogin(t, "for all users", "tickets", "--token", operator)
	if got, err := whoami(t.Context(), g.url+"/mcp", user, "tickets__whoami", true); err != nil || got != "ada" {
		t.Errorf("a user with the shared login: %q %v", got, err)
	}
}

// TestLoginIsItsBeginners checks that no principal can finish the login of another,
// nor have its own finished by another.
func TestLoginIsItsBeginners(t *testing.T) {
	t.Parallel()
	g, _, iss := wantsPerson(t, "modern", "auth: {type: login}, credential: per-principal", issuertest.Options{Registration: true})
	ada, bob := g.newToken(t, "ada"), g.newToken(t, "bob")
	resp, body := do(t, "POST", g.url+"/v1/servers/tickets/login", bearer(ada), `{"redirect":"http://127.0.0.1:1/callback"}`)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, body)
	}
	var start struct{ Flow, URL string }
	if err := json.Unmarshal([]byte(body), &start); err != nil {
		t.Fatal(err)
	}
	back := locationOf(t, start.URL)
	finish := fmt.Sprintf(`{"query":%q}`, back[strings.Index(back, "?")+1:])
	if resp, body := do(t, "POST", g.url+"/v1/servers/tickets/login/"+start.Flow, bearer(bob), finish); resp.StatusCode != http.StatusForbidden {
		t.Errorf("bob finishes ada's login: %s %s", resp.Status, body)
	}
	if n := iss.Count(issuertest.Token); n > 0 {
		t.Errorf("a code was exchanged %d times", n)
	}
	_, err := whoami(t.Context(), g.url+"/mcp", bob, "tickets__whoami", true)
	wantsLogin(t, "bob", err)
	if _, err := g.login(t, "tickets", "--token", "nobodys-nobodys-nobodys"); err == nil {
		t.Error("an unknown token began a login")
	}
}

// locationOf is where a page sends a browser to.
func locationOf(t testing.TB, page string) string {
	t.Helper()
	resp, _ := do(t, "GET", page, nil, "")
	to := resp.Header.Get("Location")
	if to == "" {
		t.Fatalf("%s does not redirect: %s", page, resp.Status)
	}
	return to
}

// TestOperatorsHaveNoLoginOfOthers has an operator enter the session of a person
// who logged in, and repeat that person's call: only the person's own calls use the
// login.
func TestOperatorsHaveNoLoginOfOthers(t *testing.T) {
	t.Parallel()
	g, up, _ := wantsPerson(t, "modern", "auth: {type: login}, credential: per-principal", issuertest.Options{Registration: true})
	ada, ops := g.newToken(t, "ada"), g.newToken(t, "ops", "--role", "operator")
	g.mustLogin(t, "for you alone", "tickets", "--token", ada)
	if got, err := whoami(t.Context(), g.url+"/mcp", ada, "tickets__whoami", true); err != nil || got != "ada" {
		t.Fatalf("%q %v", got, err)
	}
	_, body := do(t, "GET", g.url+"/v1/calls?principal=ada", bearer(ops), "")
	var list struct {
		Calls []struct{ ID, Session string }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Calls) != 1 {
		t.Fatalf("%v in %s", err, body)
	}
	before := up.executed.Load()
	_, err := whoami(t.Context(), g.url+"/s/"+list.Calls[0].Session+"/mcp", ops, "tickets__whoami", true)
	wantsLogin(t, "an operator in ada's session", err)
	if resp, body := do(t, "POST", g.url+"/v1/calls/"+list.Calls[0].ID+"/replay", bearer(ops), ""); resp.StatusCode == http.StatusOK {
		t.Errorf("an operator made ada's call again: %s", body)
	}
	if n := up.executed.Load() - before; n > 0 {
		t.Errorf("the tool ran %d times with ada's login for another principal", n)
	}
}
