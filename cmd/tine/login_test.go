package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// signOn is a gateway with a server that wants a person, and what it was told.
type signOn struct {
	*fakeGateway
	mu       sync.Mutex
	redirect string // that the login is registered with; empty for any
	page     string // of the login; empty for one with a state
	asked    string // the redirect that was asked for
	query    string // what came back
}

func newSignOn() *signOn {
	s := &signOn{fakeGateway: world()}
	s.startLogin = func(server string, l api.LoginRequest) (any, *api.Error) {
		if server != "web" {
			return nil, notFound("server " + server)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = l.Redirect
		start := api.LoginStart{Flow: "flow1", Redirect: l.Redirect, Expires: testNow.Add(time.Minute)}
		if s.redirect != "" {
			start.Redirect = s.redirect
		}
		start.URL = "https://sign-on.example.com/authorize?client_id=tine&state=st%261&redirect_uri=" + url.QueryEscape(start.Redirect)
		if s.page != "" {
			start.URL = s.page
		}
		return start, nil
	}
	s.finishLogin = func(server, flow string, l api.LoginFinish) (any, *api.Error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.query = l.Query
		q, _ := url.ParseQuery(l.Query)
		if server != "web" || flow != "flow1" || q.Get("code") != "c1" {
			return nil, &api.Error{Kind: api.KindRefused, Status: 403, Message: "the sign-on said " + q.Get("error")}
		}
		return api.Server{ID: "web", Login: &api.LoginState{Credential: "shared", LoggedIn: true}}, nil
	}
	s.logout = func(server string) (any, *api.Error) {
		if server != "web" {
			return nil, notFound("server " + server)
		}
		return api.Server{ID: "web", Login: &api.LoginState{Credential: "shared"}}, nil
	}
	return s
}

// login is one running tine login.
type login struct {
	*testCLI
	errs   *testkit.Log
	pages  chan string // that the browser was asked to show
	cancel context.CancelFunc
	done   chan int
}

func (s *signOn) login(t *testing.T, change func(*testCLI), args ...string) *login {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l := &login{testCLI: newTestCLI(t, append([]string{"login", "web"}, args...)...), errs: new(testkit.Log), pages: make(chan string, 1), cancel: cancel, done: make(chan int, 1)}
	l.env["TINE_URL"] = s.start(t)
	l.stderr = l.errs
	l.openBrowser = func(page string) error { l.pages <- page; return nil }
	if change != nil {
		change(l.testCLI)
	}
	go func() { l.done <- l.cli.run(ctx) }()
	return l
}

// visit does what a browser would and returns the status and the page.
func visit(t *testing.T, method, address, host string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", resp.Header)
	}
	return resp.StatusCode, string(body)
}

// redirectIn is where a login page sends the browser back to.
func redirectIn(t *testing.T, page string) string {
	t.Helper()
	u, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("redirect_uri")
}

func TestLogin(t *testing.T) {
	s := newSignOn()
	l := s.login(t, nil)
	back := redirectIn(t, <-l.pages)
	if back != s.asked || !strings.HasPrefix(back, "http://127.0.0.1:") || !strings.HasSuffix(back, "/callback") {
		t.Fatalf("comes back to %s, asked for %s", back, s.asked)
	}
	shows(t, l.errs, "https://sign-on.example.com/authorize?client_id=tine&state=st%261")
	// Nothing but the answer to this login ends the wait.
	for _, tt := range []struct {
		method, address, host string
		status                int
	}{
		{"GET", back + "?code=c1&state=other", "", 400},
		{"GET", back + "?code=c1", "", 400},
		{"GET", back + "?state=st%261", "", 400},
		{"GET", back, "", 400},
		{"POST", back + "?code=c1&state=st%261", "", 405},
		{"GET", strings.TrimSuffix(back, "/callback") + "/?code=c1&state=st%261", "", 404},
		{"GET", strings.TrimSuffix(back, "/callback") + "/favicon.ico", "", 404},
		{"GET", back + "?code=c1&state=st%261", "evil.example.com", 421},
		{"GET", back + "?code=c1&state=st%261", strings.Replace(strings.TrimPrefix(strings.TrimSuffix(back, "/callback"), "http://"), "127.0.0.1", "localhost", 1), 421},
	} {
		if status, _ := visit(t, tt.method, tt.address, tt.host); status != tt.status {
			t.Errorf("%s %s as %s: %d, want %d", tt.method, tt.address, tt.host, status, tt.status)
		}
	}
	select {
	case code := <-l.done:
		t.Fatalf("ended with %d: %s", code, l.errs)
	default:
	}
	status, body := visit(t, "GET", back+"?state=st%261&code=c1&iss=https%3A%2F%2Fx", "")
	if status != 200 || !strings.Contains(body, "You can close this window") || strings.Contains(body, "c1") {
		t.Errorf("%d %s", status, body)
	}
	if code := <-l.done; code != 0 || l.out.String() != "web: logged in, for all users of it\n" {
		t.Errorf("exit %d, %q, %q", code, l.out.String(), l.errs)
	}
	if s.query != "state=st%261&code=c1&iss=https%3A%2F%2Fx" {
		t.Errorf("handed over %q", s.query)
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimSuffix(back, "/callback"), "http://")); err == nil {
		conn.Close()
		t.Error("still listens")
	}
}

func TestLoginRefused(t *testing.T) {
	s := newSignOn()
	l := s.login(t, nil)
	_, body := visit(t, "GET", redirectIn(t, <-l.pages)+"?state=st%261&error=access_denied", "")
	if !strings.Contains(body, "refused") {
		t.Error(body)
	}
	if code := <-l.done; code != exitFailed || !strings.Contains(l.errs.String(), "access_denied") || l.out.Len() > 0 {
		t.Errorf("exit %d, %q", code, l.errs)
	}
}

// A registered redirect is listened at with any path.
func TestLoginWithRegisteredRedirect(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	s := newSignOn()
	s.redirect = "http://localhost:" + port + "/oauth/done"
	l := s.login(t, nil, "--json")
	page := <-l.pages
	if redirectIn(t, page) != s.redirect {
		t.Fatal(page)
	}
	if status, _ := visit(t, "GET", "http://127.0.0.1:"+port+"/oauth/done?code=c1&state=st%261", "localhost:"+port); status != 200 {
		t.Errorf("status %d", status)
	}
	if code := <-l.done; code != 0 || !strings.Contains(l.out.String(), `"logged_in": true`) {
		t.Errorf("exit %d, %q, %q", code, l.out.String(), l.errs)
	}
}

// Where the program can't listen, or the browser is elsewhere, a person pastes.
func TestLoginPasted(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, redirect := range []string{"", "http://" + taken.Addr().String() + "/cb", "https://tine.example.com/login"} {
		s := newSignOn()
		s.redirect = redirect
		in, typed := io.Pipe()
		l := s.login(t, func(tc *testCLI) {
			tc.inTerminal, tc.stdin = true, in
			tc.openBrowser = func(string) error { return errors.New("no screen") }
		})
		shows(t, l.errs, "paste the address")
		io.WriteString(typed, "\nhttps://tine.example.com/login?code=c1&state=wrong\n")
		shows(t, l.errs, "that is not the address")
		io.WriteString(typed, "  https://tine.example.com/login?code=c1&state=st%261 \n")
		if code := <-l.done; code != 0 || s.query != "code=c1&state=st%261" || !strings.Contains(l.errs.String(), "no screen") {
			t.Errorf("%q: exit %d, %q, handed over %q", redirect, code, l.errs, s.query)
		}
		typed.Close()
	}
}

func TestLoginThatCannotBe(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*signOn)
		args   []string
		code   int
		say    string
	}{
		{"unknown server", nil, []string{"login", "wb"}, exitUsage, "did you mean web?"},
		{"redirect elsewhere", func(s *signOn) { s.redirect = "https://tine.example.com/login" }, []string{"login", "web"}, exitFailed, "servers.web.auth.redirect"},
		{"a page that is none", func(s *signOn) { s.page = "file:///etc/passwd?state=x" }, []string{"login", "web"}, exitFailed, "no web address"},
		{"a page that is a flag", func(s *signOn) { s.page = "--version" }, []string{"login", "web"}, exitFailed, "no web address"},
		{"no redirect", nil, []string{"login", "web", "--timeout", "1ns"}, exitFailed, "was not completed"},
		{"no time", nil, []string{"login", "web", "--timeout", "0s"}, exitUsage, "--timeout"},
		{"no server", nil, []string{"login"}, exitUsage, "the id of a server"},
		{"logout elsewhere", nil, []string{"login", "wb", "--logout"}, exitUsage, "did you mean web?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSignOn()
			if tt.change != nil {
				tt.change(s)
			}
			stdout, stderr, code := run(t, s.start(t), tt.args...)
			if code != tt.code || !strings.Contains(stderr, tt.say) || stdout != "" {
				t.Errorf("exit %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

func TestLoginInterrupted(t *testing.T) {
	l := newSignOn().login(t, nil, "--no-browser")
	shows(t, l.errs, "Waiting")
	l.cancel()
	if code := <-l.done; code != exitFailed || !strings.Contains(l.errs.String(), "tine: interrupted") || len(l.pages) > 0 {
		t.Errorf("exit %d, %q", code, l.errs)
	}
}

func TestLogout(t *testing.T) {
	stdout, stderr, code := run(t, newSignOn().start(t), "login", "web", "--logout")
	if code != 0 || stdout != "web: logged out\n" {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

func TestPastedQuery(t *testing.T) {
	for line, want := range map[string]string{
		"http://127.0.0.1:1/callback?code=a&state=s":     "code=a&state=s",
		"  https://x/y?state=s&error=access_denied#frag": "state=s&error=access_denied",
		"?code=a&state=s":             "code=a&state=s",
		"code=a%2Fb&state=s":          "code=a%2Fb&state=s",
		"http://127.0.0.1:1/callback": "",
		"code=a":                      "",
		"code=a&state=t":              "",
		"state=s":                     "",
		"%zz":                         "",
		"":                            "",
	} {
		if got, err := pastedQuery(line, "s"); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
}

func TestBrowserCommands(t *testing.T) {
	for _, tt := range []struct {
		goos string
		env  map[string]string
		want string
	}{
		{"linux", nil, ""},
		{"linux", map[string]string{"DISPLAY": ":0"}, "xdg-open U"},
		{"linux", map[string]string{"WAYLAND_DISPLAY": "w", "BROWSER": "firefox --new-window:lynx -x=%s -y"}, "firefox --new-window U|lynx -x=U -y|xdg-open U"},
		{"linux", map[string]string{"BROWSER": " : "}, ""},
		{"darwin", nil, "open U"},
		{"windows", map[string]string{"BROWSER": `C:\b.exe`}, `C:\b.exe U|rundll32 url.dll,FileProtocolHandler U`},
	} {
		var got []string
		for _, args := range browserCommands(tt.goos, func(k string) string { return tt.env[k] }, "U") {
			got = append(got, strings.Join(args, " "))
		}
		if strings.Join(got, "|") != tt.want {
			t.Errorf("%s %v: %q, want %q", tt.goos, tt.env, got, tt.want)
		}
	}
	getenv := func(k string) string { return map[string]string{"BROWSER": "/nonexistent/browser"}[k] }
	if err := openBrowser("linux", getenv, "http://x"); err == nil {
		t.Error("opened what is not there")
	}
	if err := openBrowser("linux", func(string) string { return "" }, "http://x"); err == nil {
		t.Error("opened without a screen")
	}
}

func TestLogoutOfNobody(t *testing.T) {
	f := newSignOn()
	f.server = func(id string) (any, *api.Error) {
		return &api.Server{ID: id, Login: &api.LoginState{Credential: "shared"}}, nil
	}
	if stdout, stderr, code := run(t, f.start(t), "login", "web", "--logout"); code != 0 || stdout != "web: there was no login\n" {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}
