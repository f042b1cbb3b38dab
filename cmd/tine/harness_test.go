package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fakeGateway is the control API as a struct of funcs. Those that are nil answer
// 404 the way the gateway does.
type fakeGateway struct {
	status  func() (any, *api.Error)
	reload  func() *api.Error
	servers func() (any, *api.Error)
	server  func(id string) (any, *api.Error)
	patch   func(id string, p api.ServerPatch) (any, *api.Error)
	tools   func(server string) (any, *api.Error)
	call    func(r api.CallRequest) (any, *api.Error)
	logs    func(server string, bytes int64) (any, *api.Error)

	calls   func(q url.Values) (any, *api.Error)
	follow  func(w http.ResponseWriter, r *http.Request)
	events  func(http.ResponseWriter, *http.Request)
	stream  func(w http.ResponseWriter, r *http.Request) // of a call that tells of its progress
	oneCall func(id string) (any, *api.Error)
	replay  func(id string) (any, *api.Error)

	tokens      func() (any, *api.Error)
	newToken    func(t api.NewToken) (any, *api.Error)
	rotateToken func(name string) (any, *api.Error)
	revokeToken func(name string) (any, *api.Error)

	startLogin  func(server string, l api.LoginRequest) (any, *api.Error)
	finishLogin func(server, flow string, l api.LoginFinish) (any, *api.Error)
	logout      func(server string) (any, *api.Error)

	sessions *fakeSessions

	// seen is told of every request first.
	seen func(*http.Request)
}

func notFound(what string) *api.Error {
	return &api.Error{Kind: api.KindInvalid, Message: "no " + what, Status: http.StatusNotFound}
}

func (f *fakeGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.seen != nil {
		f.seen(r)
	}
	if f.follow != nil && r.URL.Path == "/v1/calls" && r.URL.Query().Has("follow") {
		f.follow(w, r)
		return
	}
	if f.events != nil && r.URL.Path == "/v1/events" {
		f.events(w, r)
		return
	}
	if f.stream != nil && r.URL.Path == "/v1/call" && strings.Contains(r.Header.Get("Accept"), "application/x-ndjson") {
		f.stream(w, r)
		return
	}
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, *api.Error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, e := f(r)
			w.Header().Set("Content-Type", "application/json")
			if e != nil {
				w.WriteHeader(e.Status)
				v = e
			}
			if raw, ok := v.(json.RawMessage); ok {
				w.Write(raw)
				return
			}
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			enc.Encode(v)
		})
	}
	if f.status != nil {
		handle("GET /v1/status", func(*http.Request) (any, *api.Error) { return f.status() })
	}
	if f.reload != nil {
		handle("POST /v1/reload", func(*http.Request) (any, *api.Error) { return struct{}{}, f.reload() })
	}
	if f.servers != nil {
		handle("GET /v1/servers", func(*http.Request) (any, *api.Error) { return f.servers() })
	}
	if f.server != nil {
		handle("GET /v1/servers/{id}", func(r *http.Request) (any, *api.Error) { return f.server(r.PathValue("id")) })
	}
	if f.patch != nil {
		handle("PATCH /v1/servers/{id}", withBody(func(r *http.Request, p api.ServerPatch) (any, *api.Error) {
			return f.patch(r.PathValue("id"), p)
		}))
	}
	if f.tools != nil {
		handle("GET /v1/tools", func(r *http.Request) (any, *api.Error) { return f.tools(r.URL.Query().Get("server")) })
	}
	if f.call != nil {
		handle("POST /v1/call", withBody(func(_ *http.Request, c api.CallRequest) (any, *api.Error) { return f.call(c) }))
	}
	if f.logs != nil {
		handle("GET /v1/servers/{id}/logs", func(r *http.Request) (any, *api.Error) {
			n, _ := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
			return f.logs(r.PathValue("id"), n)
		})
	}
	if f.calls != nil {
		handle("GET /v1/calls", func(r *http.Request) (any, *api.Error) { return f.calls(r.URL.Query()) })
	}
	if f.oneCall != nil {
		handle("GET /v1/calls/{id}", func(r *http.Request) (any, *api.Error) { return f.oneCall(r.PathValue("id")) })
	}
	if f.replay != nil {
		handle("POST /v1/calls/{id}/replay", func(r *http.Request) (any, *api.Error) { return f.replay(r.PathValue("id")) })
	}
	if f.tokens != nil {
		handle("GET /v1/tokens", func(*http.Request) (any, *api.Error) { return f.tokens() })
	}
	if f.newToken != nil {
		handle("POST /v1/tokens", withBody(func(_ *http.Request, t api.NewToken) (any, *api.Error) { return f.newToken(t) }))
	}
	if f.rotateToken != nil {
		handle("POST /v1/tokens/{name}/rotate", func(r *http.Request) (any, *api.Error) { return f.rotateToken(r.PathValue("name")) })
	}
	if f.revokeToken != nil {
		handle("DELETE /v1/tokens/{name}", func(r *http.Request) (any, *api.Error) { return f.revokeToken(r.PathValue("name")) })
	}
	if f.startLogin != nil {
		handle("POST /v1/servers/{id}/login", withBody(func(r *http.Request, l api.LoginRequest) (any, *api.Error) {
			return f.startLogin(r.PathValue("id"), l)
		}))
	}
	if f.finishLogin != nil {
		handle("POST /v1/servers/{id}/login/{flow}", withBody(func(r *http.Request, l api.LoginFinish) (any, *api.Error) {
			return f.finishLogin(r.PathValue("id"), r.PathValue("flow"), l)
		}))
	}
	if f.logout != nil {
		handle("DELETE /v1/servers/{id}/login", func(r *http.Request) (any, *api.Error) { return f.logout(r.PathValue("id")) })
	}
	if f.sessions != nil {
		f.sessions.routes(handle, mux.HandleFunc)
	}
	handle("/", func(r *http.Request) (any, *api.Error) { return nil, notFound(r.URL.Path) })
	mux.ServeHTTP(w, r)
}

// withBody decodes the body of a request first.
func withBody[T any](f func(*http.Request, T) (any, *api.Error)) func(*http.Request) (any, *api.Error) {
	return func(r *http.Request) (any, *api.Error) {
		var in T
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return nil, &api.Error{Kind: api.KindInvalid, Message: err.Error(), Status: 400}
		}
		return f(r, in)
	}
}

// start serves a fake gateway until the test ends.
func (f *fakeGateway) start(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// testNow is when every test runs.
var testNow = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// testCLI is a program that sees nothing of the machine but its files.
type testCLI struct {
	*cli
	out, err bytes.Buffer
	env      map[string]string
}

func newTestCLI(t testing.TB, args ...string) *testCLI {
	t.Helper()
	tc := &testCLI{env: map[string]string{"TINE_STATE": t.TempDir()}}
	tc.cli = &cli{
		args:      args,
		stdin:     strings.NewReader(""),
		stdout:    &tc.out,
		stderr:    &tc.err,
		lookupEnv: func(k string) (string, bool) { v, ok := tc.env[k]; return v, ok },
		now:       func() time.Time { return testNow },
		after:     time.After,
		version:   "1.2.3",
		readHidden: func(context.Context) ([]byte, error) {
			t.Error("asked for a secret at a terminal")
			return nil, io.EOF
		},
		openBrowser: func(string) error { return errors.New("this is a test") },
		executable:  func() (string, error) { return "/opt/tine/bin/tine", nil },
		probeSandbox: func(context.Context, sandbox.Options) []sandbox.Step {
			return []sandbox.Step{{Name: "namespaces", Needed: true, Detail: "this is a test", Mend: "run it yourself"}}
		},
	}
	return tc
}

// run runs one command line against a gateway.
func run(t testing.TB, url string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	tc := newTestCLI(t, args...)
	tc.env["TINE_URL"] = url
	code = tc.cli.run(t.Context())
	return tc.out.String(), tc.err.String(), code
}

// golden compares a text with a file, or writes the file with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test -update writes it", err)
	}
	if w := strings.ReplaceAll(string(want), "\r\n", "\n"); got != w {
		t.Errorf("%s differs; go test -update writes it anew\n--- got\n%s--- want\n%s", path, got, w)
	}
}

// brokenWriter is a disk that is full.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
