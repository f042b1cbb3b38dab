package identity_test

import (
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// newServer serves until the test ends and returns its URL.
func newServer(t *testing.T, h http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return "http://" + ln.Addr().String()
}

// A reload keeps keys and verified tokens, and applies everything else at once.
func TestWith(t *testing.T) {
	w := newWorld(t, nil)
	token := w.token(map[string]any{"groups": "dev", "scope": "tools"})
	p, _ := w.expect(t, token, "oidc:ada")
	old := w.guard
	reload := func(change func(*identity.Options)) {
		t.Helper()
		o := w.opts
		oidc := *o.OIDC
		oidc.Scopes = slices.Clone(oidc.Scopes)
		o.OIDC = &oidc
		change(&o)
		w.guard = w.guard.With(o)
	}
	w.iss.Down(true)
	reload(func(o *identity.Options) {
		o.Rules = []identity.Rule{{Claims: map[string][]string{"groups": {"dev"}}, Servers: []string{"github"}, Role: api.RoleViewer}}
	})
	q, _ := w.expect(t, token, "oidc:ada")
	if !q.MaySee("github") || q.MaySee("fs") || q.Role != api.RoleViewer {
		t.Errorf("new rules: %+v", q)
	}
	if !p.MaySee("fs") {
		t.Error("a running request lost its permissions")
	}
	if q, r := old.Identify(t.Context(), "Bearer "+token, resource); r != nil || !q.MaySee("fs") {
		t.Errorf("the old guard: %+v %+v", q, r)
	}
	reload(func(o *identity.Options) { o.OIDC.Scopes = []string{"tools", "admin"} })
	w.expect(t, token, identity.ReasonScope)
	reload(func(o *identity.Options) { o.OIDC.Audience = []string{"elsewhere"} })
	w.expect(t, token, identity.ReasonAudience)
	reload(func(o *identity.Options) { o.OIDC.Principal = "sub"; o.PublicURL = "https://tine.example/" })
	w.expect(t, token, "oidc:ada")
	w.fetches(t, 1, 1)
	old.Close() // it was replaced: the new one must not notice
	w.iss.Down(false)
	w.Advance(time.Minute)
	w.iss.Rotate()
	token = w.token(map[string]any{"groups": "dev"})
	w.expect(t, token, "oidc:ada")
	w.fetches(t, 1, 2)

	reload(func(o *identity.Options) { o.OIDC.Principal = "groups" })
	w.expect(t, token, "oidc:dev")
	w.fetches(t, 2, 3)
	reload(func(o *identity.Options) { o.OIDC = nil })
	w.expect(t, token, identity.ReasonUnknown)
	if !w.guard.Open() {
		t.Error("nothing guards it, and it is not open")
	}
	reload(func(*identity.Options) {})
	w.expect(t, token, "oidc:ada")
	w.fetches(t, 3, 4)
}
