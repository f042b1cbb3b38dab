package remote

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

// Each side is shown what is for it, and nothing else.
func TestWhoIsShownWhat(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Spec){"direct": func(*driver.Spec) {}, "through": through} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			inst := r.start(t, r.d, r.spec(change, func(s *driver.Spec) { s.Header.Set("X-Api-Key", "key-of-ours-3") }))
			echo(t, inst, "hello")
			if link := dial(t, inst); link.Stream != nil {
				ask(t, link.Stream, "tools/list", "{}")
			}
			b, err := json.Marshal(inst.Handle())
			if err != nil || strings.Contains(string(b), ours) {
				t.Errorf("handle %s, %v", b, err)
			}
			stop(t, inst)
			for _, req := range r.requests("") {
				auth, key := req.Header.Get("Authorization"), req.Header.Get("X-Api-Key")
				if strings.HasPrefix(req.URL.Path, "/mcp/") {
					if auth != "Bearer "+theirs || key != "" {
						t.Errorf("the instance was shown %q and %q", auth, key)
					}
				} else if auth != "Bearer "+ours || key != "key-of-ours-3" {
					t.Errorf("the orchestrator was shown %q and %q", auth, key)
				}
			}
			r.clears(t)
		})
	}
}

// signer puts a token on requests, as one that was fetched.
func signer(token string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+token)
			return next.RoundTrip(r)
		})
	}
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// locked has the orchestrator want a token.
func locked(w http.ResponseWriter, r *http.Request, _ []byte) bool {
	if strings.HasPrefix(r.URL.Path, "/mcp/") || r.Header.Get("Authorization") == "Bearer "+ours {
		return false
	}
	refuse(401)(w, r)
	return true
}

// What was made with a token that is fetched can only be removed with one.
func TestFetchedCredentials(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.before = locked
	signed := func(s *driver.Spec) { s.Header, s.Authorize = nil, signer(ours) }
	for range 2 {
		r.start(t, r.d, r.spec(signed)).Leave()
	}
	if n := r.left(); n != 2 {
		t.Fatalf("%d are there, want 2", n)
	}
	// A gateway without the credential waits until a caller brings it.
	next := r.driver(t)
	if gone, err := next.Sweep(t.Context(), r.home+"/instances", map[string]bool{r.home + "/instances/1": true}); err != nil || len(gone) != 1 {
		t.Fatalf("swept %v, %v", gone, err)
	}
	if n := r.left(); n != 2 {
		t.Errorf("%d are there, want 2", n)
	}
	inst := r.start(t, next, r.spec(signed))
	testkit.Eventually(t, "the removal", func() bool { return r.left() == 2 })
	stop(t, inst)
	// One that has it needs no caller.
	third := r.driver(t)
	third.o.Authorize = func(server string) func(http.RoundTripper) http.RoundTripper {
		if server != "box" {
			t.Errorf("asked for %q", server)
		}
		return signer(ours)
	}
	if gone, err := third.Sweep(t.Context(), r.home+"/instances", nil); err != nil || len(gone) != 1 {
		t.Fatalf("swept %v, %v", gone, err)
	}
	r.clears(t)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*driver.Spec)
		before func(http.ResponseWriter, *http.Request, []byte) bool
		words  []string
	}{
		"healthy":             {},
		"no health":           {change: func(s *driver.Spec) { options(*s).Health = "" }},
		"sick":                {before: times(always, "GET /health", refuse(503)), words: []string{"/health answered 503", "the disk"}},
		"not let in":          {change: func(s *driver.Spec) { s.Header = nil }, before: locked, words: []string{"does not let us in", "servers.box.headers"}},
		"no health, locked":   {change: func(s *driver.Spec) { s.Header, options(*s).Health = nil, "" }, before: locked, words: []string{"does not let us in"}},
		"no listener":         {change: func(s *driver.Spec) { options(*s).URL = "http://127.0.0.1:1/x?key=" + ours }, words: []string{"refused"}},
		"tools":               {change: tools},
		"tools of other name": {change: func(s *driver.Spec) { tools(s); options(*s).CallTool = "ring" }, words: []string{`no tool "ring"`}},
		"not MCP": {change: func(s *driver.Spec) {
			tools(s)
			options(*s).URL = strings.TrimSuffix(options(*s).URL, "/orchestrator") + "/health"
		}, words: []string{"405"}},
		"no URL":          {change: func(s *driver.Spec) { options(*s).URL = "" }, words: []string{"servers.box.remote.url"}},
		"odd URL":         {change: func(s *driver.Spec) { options(*s).URL = "http://u:" + ours + "@h:x/" }, words: []string{"servers.box.remote.url"}},
		"no mark":         {change: func(s *driver.Spec) { options(*s).Delete = "/x" }, words: []string{"servers.box.remote.delete", instanceMark}},
		"no remote":       {change: func(s *driver.Spec) { s.Options = nil }, words: []string{"servers.box.remote.url"}},
		"tools that fork": {change: func(s *driver.Spec) { tools(s); options(*s).Fork = "/" + instanceMark }, words: []string{"can't fork"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.before = tt.before
			spec := r.spec()
			if tt.change != nil {
				tt.change(&spec)
			}
			err := r.d.check(t.Context(), spec)
			if tt.words == nil {
				if err != nil {
					t.Errorf("it does not pass: %v", err)
				}
			} else {
				says(t, err, tt.words...)
			}
			if n := r.left(); n != 0 {
				t.Errorf("checking made %d", n)
			}
		})
	}
}

// A config that goes over from a token that is fetched to a header is asked with
// the header alone.
func TestCredentialsThatAreNotWantedAnyMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stop(t, r.start(t, r.d, r.spec(func(s *driver.Spec) { s.Authorize = signer("fetched-secret-4") })))
	before := len(r.requests(""))
	stop(t, r.start(t, r.d, r.spec()))
	for _, req := range r.requests("")[before:] {
		if got := req.Header.Get("Authorization"); got != "Bearer "+ours {
			t.Errorf("%s %s was shown %q", req.Method, req.URL.Path, got)
		}
	}
	r.clears(t)
}

// A URL may hold a secret too, which some repeat.
func TestASecretInTheURL(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.before = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		http.Error(w, "no such key: "+r.URL.Query().Get("key"), http.StatusForbidden)
		return true
	}
	_, err := r.d.Start(t.Context(), r.spec(tools, func(s *driver.Spec) { options(*s).URL += "?key=" + ours }))
	says(t, err, "403 Forbidden", "no such key: ***")
}
