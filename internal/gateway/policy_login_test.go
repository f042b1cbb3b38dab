package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

// subjectOf is who a request's token is of, by its own word.
func subjectOf(in received) string {
	parts := strings.Split(strings.TrimPrefix(in.header.Get("Authorization"), "Bearer "), ".")
	if len(parts) != 3 {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct{ Sub string }
	_ = json.Unmarshal(raw, &claims)
	return claims.Sub
}

// personal is a server that wants a person's login and has lists for each person.
func personal(t *testing.T, isModern bool) *scripted {
	up := script(t, isModern, nil)
	for method := range listsOf {
		up.on(method, func(w http.ResponseWriter, _ *http.Request, in received) {
			if subjectOf(in) == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			writeResult(w, in, listed(method, "of-"+subjectOf(in), `"ttlMs":3600000`, `"cacheScope":"private"`))
		})
	}
	return up
}

// login logs a principal in to the server, as the issuer's user subject.
func login(t *testing.T, w *world, iss *issuertest.Issuer, subject string, headers ...string) {
	t.Helper()
	iss.SetSubject(subject, nil)
	headers = append([]string{"Content-Type", "application/json"}, headers...)
	r := w.do(t, "POST", "/v1/servers/a/login", `{"redirect":"http://127.0.0.1:1/callback"}`, headers...)
	var start api.LoginStart
	decode(t, r.body, &start)
	if start.URL == "" {
		t.Fatalf("login: status %d %s", r.status, r.body)
	}
	browser := &http.Client{Transport: w.http.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := browser.Get(start.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	back, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || back.RawQuery == "" {
		t.Fatalf("the issuer answered %s, %v", resp.Status, err)
	}
	body, err := json.Marshal(api.LoginFinish{Query: back.RawQuery})
	if err != nil {
		t.Fatal(err)
	}
	if r := w.do(t, "POST", "/v1/servers/a/login/"+start.Flow, string(body), headers...); r.status != http.StatusOK {
		t.Fatalf("login: status %d %s", r.status, r.body)
	}
}

func loginWorld(t *testing.T, isModern bool, credential string) (*world, *issuertest.Issuer) {
	iss := issuertest.New(t, issuertest.Options{Clients: []issuertest.Client{{ID: "tine", Redirects: []string{"http://127.0.0.1:1/callback"}}}})
	up := personal(t, isModern)
	w := open(t, twoPeople+servers("a", fmt.Sprintf(`{url: %q, credential: %s, auth: {type: login, client_id: tine, token_url: %q, auth_url: %q}}`,
		up.URL, credential, iss.TokenURL(), iss.AuthorizeURL())))
	return w, iss
}

// TestListsOfEachPersonsLogin has two principals with a login each.
func TestListsOfEachPersonsLogin(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		w, iss := loginWorld(t, isModern, "per-principal")
		login(t, w, iss, "alice", asAda...)
		login(t, w, iss, "robert", asBob...)
		for _, path := range []string{"/mcp/a", "/mcp"} {
			for method := range listsOf {
				for range 2 {
					for want, headers := range map[string][]string{"of-alice": asAda, "of-robert": asBob} {
						if got := itemOf(t, method, w.modern(t, path, `{}`, headers...).get(method, "", `{}`)); got != want {
							t.Errorf("modern=%v, %s: %s got %s", isModern, path, method, got)
						}
						if got := itemOf(t, method, w.dial(t, path, `{}`, headers...).get(method, `{}`)); got != want {
							t.Errorf("modern=%v, %s: %s got %s", isModern, path, method, got)
						}
					}
				}
			}
		}
	}
}

// TestListsAfterAnotherLogin has a principal log in as another user: what was
// kept is of the user before.
func TestListsAfterAnotherLogin(t *testing.T) {
	t.Parallel()
	for _, credential := range []string{"per-principal", "shared"} {
		for _, isModern := range []bool{false, true} {
			w, iss := loginWorld(t, isModern, credential)
			as, asker := asAda, asAda
			if credential == "shared" {
				as = []string{"Authorization", "Bearer " + operator}
			}
			check := func(when, want string) {
				t.Helper()
				for _, path := range []string{"/mcp/a", "/mcp"} {
					for method := range listsOf {
						if got := itemOf(t, method, w.modern(t, path, `{}`, asker...).get(method, "", `{}`)); got != want {
							t.Errorf("%s, modern=%v, %s: %s of %s is %s, want %s", credential, isModern, when, method, path, got, want)
						}
					}
				}
			}
			login(t, w, iss, "alice", as...)
			check("at first", "of-alice")
			login(t, w, iss, "mallory", as...)
			check("after another login", "of-mallory")
			if r := w.do(t, "DELETE", "/v1/servers/a/login", "", as...); r.status != http.StatusOK {
				t.Fatalf("logout: status %d %s", r.status, r.body)
			}
			if m := w.modern(t, "/mcp/a", `{}`, asker...).ask("tools/list", "", `{}`); m.Result != nil {
				t.Errorf("%s, modern=%v: after the logout the list is still there: %s", credential, isModern, m.raw)
			}
		}
	}
}

// A server whose login was forgotten or has ended is as it was before the first one, and
// its refused calls are failures.
func TestServerWithoutItsLogin(t *testing.T) {
	t.Parallel()
	w, iss := loginWorld(t, true, "shared")
	as := []string{"Authorization", "Bearer " + operator}
	check := func(when, state, reason string, in bool) (s api.Server) {
		t.Helper()
		decode(t, w.do(t, "GET", "/v1/servers/a", "", as...).body, &s)
		if s.State != state || s.Reason != reason || s.Login == nil || s.Login.LoggedIn != in {
			t.Errorf("%s: %s, %q, login %+v; want %s, %q", when, s.State, s.Reason, s.Login, state, reason)
		}
		var list api.ServerList
		decode(t, w.do(t, "GET", "/v1/servers", "", as...).body, &list)
		if got := list.Servers[0]; got.State != state || got.Reason != reason {
			t.Errorf("%s, in the list: %s, %q", when, got.State, got.Reason)
		}
		return s
	}
	const nobody = "nobody has logged in; run: tine login a"
	call := func() { w.modern(t, "/mcp/a", `{}`, asAda...).ask("tools/call", "plain", `{"name":"plain"}`) }
	check("before the first login", api.StateFailed, nobody, false)
	login(t, w, iss, "alice", as...)
	call()
	was := check("after the login", api.StateReady, "", true)
	if r := w.do(t, "DELETE", "/v1/servers/a/login", "", as...); r.status != http.StatusOK {
		t.Fatalf("logout: status %d %s", r.status, r.body)
	}
	if s := check("after the logout", api.StateFailed, nobody, false); !s.Since.After(was.Since) {
		t.Errorf("failed since %s, ready since %s", s.Since, was.Since)
	}
	call()
	s := check("after a call", api.StateFailed, nobody, false)
	if s.Calls != was.Calls+1 || s.Failures != was.Failures+1 || s.LastError == nil || !strings.Contains(s.LastError.Message, nobody) {
		t.Errorf("%d calls, %d failed, last error %+v; before %+v", s.Calls, s.Failures, s.LastError, was)
	}
	login(t, w, iss, "alice", as...)
	check("after another login", api.StateReady, "", true)
}
