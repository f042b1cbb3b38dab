package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// TestDoctorRemotes holds that for each server that an orchestrator runs the
// doctor says whether that one answers and takes the credentials.
func TestDoctorRemotes(t *testing.T) {
	orchestrator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"access_token":"fetched-fetched-fetched","token_type":"Bearer","expires_in":3600}`)
		case r.Method != http.MethodGet:
			t.Errorf("%s %s: the doctor changes something", r.Method, r.URL.Path)
		case r.URL.Path == "/ill":
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Header.Get("Authorization") == "Bearer good-good-good", r.Header.Get("Authorization") == "Bearer fetched-fetched-fetched":
			fmt.Fprint(w, `{"status":"ok"}`)
		default:
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, "not with %s", r.Header.Get("Authorization"))
		}
	}))
	defer orchestrator.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	fakePath(t, nil)
	tc := newTestCLI(t)
	server := func(id, url, health, more string) string {
		return fmt.Sprintf("  %s: {remote: {url: %q, resource: x%s}%s}\n", id, url, health, more)
	}
	good := ", headers: {Authorization: Bearer good-good-good}"
	freeConfig(t, tc, server("fine", orchestrator.URL, ", health: /health", good)+
		server("silent", orchestrator.URL, "", good)+
		server("oauth", orchestrator.URL, ", health: /health", ", auth: {type: client_credentials, token_url: \""+orchestrator.URL+"/token\", client_id: me, client_secret: very-secret}")+
		server("wrong", orchestrator.URL, ", health: /health", ", headers: {Authorization: Bearer bad-bad-bad}")+
		server("ill", orchestrator.URL, ", health: /ill", good)+
		server("gone", gone.URL, "", "")+
		server("off", gone.URL, "", ", enabled: false"))
	got, code := doctor(t, tc)
	for _, tt := range []struct{ id, status, detail, mend string }{
		{"fine", driver.FoundOK, "takes the credentials, at " + orchestrator.URL, ""},
		{"silent", driver.FoundOK, "takes the credentials", ""},
		{"oauth", driver.FoundOK, "takes the credentials", ""},
		{"wrong", driver.FoundMissing, "does not let us in", "headers or auth"},
		{"ill", driver.FoundMissing, "503", "servers.ill.remote.url"},
		{"gone", driver.FoundMissing, "refused", "servers.gone.remote.url"},
	} {
		ch := got["server "+tt.id]
		if ch.Status != tt.status || !strings.Contains(ch.Detail, tt.detail) || !strings.Contains(ch.Mend, tt.mend) {
			t.Errorf("%s: %+v, want %s, %q and %q", tt.id, ch, tt.status, tt.detail, tt.mend)
		}
		if strings.Contains(ch.Detail, "bad-bad-bad") || strings.Contains(ch.Detail, "very-secret") {
			t.Errorf("%s: a secret is shown: %+v", tt.id, ch)
		}
	}
	if ch, ok := got["server off"]; ok {
		t.Errorf("a server that is off was looked at: %+v", ch)
	}
	if code != 0 {
		t.Errorf("exit %d", code)
	}
}
