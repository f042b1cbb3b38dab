package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

func TestDoctorGateway(t *testing.T) {
	fakePath(t, nil)
	healthy := func() *fakeGateway {
		return &fakeGateway{
			status: func() (any, *api.Error) { return api.Status{Version: "1.2.3"}, nil },
			servers: func() (any, *api.Error) {
				return api.ServerList{Servers: []api.Server{{ID: "a", State: api.StateReady}, {ID: "b", State: api.StateDisabled}}}, nil
			},
		}
	}
	refusing := func(token string) *fakeGateway {
		var auth string
		f := healthy()
		f.seen = func(r *http.Request) { auth = r.Header.Get("Authorization") }
		f.status = func() (any, *api.Error) {
			if auth != "Bearer "+token {
				return nil, &api.Error{Kind: api.KindRefused, Status: 401, Message: "no token"}
			}
			return api.Status{Version: "1.2.3"}, nil
		}
		return f
	}
	old := healthy()
	old.status = func() (any, *api.Error) { return api.Status{Version: "1.1.0", Draining: true}, nil }
	failing := healthy()
	failing.servers = func() (any, *api.Error) {
		return api.ServerList{Servers: []api.Server{{ID: "a", State: api.StateFailed, Reason: "command \"uvx\" not found"}, {ID: "b", State: api.StateReady, Breaker: api.BreakerOpen}}}, nil
	}
	failed := healthy()
	failed.servers = func() (any, *api.Error) {
		return api.ServerList{Servers: []api.Server{{ID: "a", State: api.StateFailed, Reason: "command \"uvx\" not found"}}}, nil
	}
	for _, tt := range []struct {
		name          string
		gateway       *fakeGateway
		token         string
		checks        map[string]string // status by check
		detail, mends string
	}{
		{"fine", healthy(), "", map[string]string{"gateway": driver.FoundOK, "servers": driver.FoundOK}, "open to callers without a token", ""},
		{"with a token", refusing("tok"), "tok", map[string]string{"gateway": driver.FoundOK}, "callers need a token", ""},
		{"without its token", refusing("tok"), "", map[string]string{"gateway": driver.FoundMissing, "servers": ""}, "refuses this program", "--token-file"},
		{"another version", old, "", map[string]string{"gateway": driver.FoundWarn}, "tine 1.1.0 at", "restart the gateway"},
		{"failed servers", failing, "", map[string]string{"gateway": driver.FoundOK, "servers": driver.FoundWarn}, `a: command "uvx" not found`, "tine logs NAME of each"},
		{"a failed server", failed, "", map[string]string{"gateway": driver.FoundOK, "servers": driver.FoundWarn}, `a: command "uvx" not found`, "tine logs a"},
		{"no gateway there", nil, "", map[string]string{"gateway": driver.FoundMissing, "servers": ""}, "127.0.0.1:1", "start it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tc := newTestCLI(t)
			freeConfig(t, tc, "  a: {builtin: time}\n")
			tc.env["TINE_URL"], tc.env["TINE_TOKEN"] = "http://127.0.0.1:1", tt.token
			if tt.gateway != nil {
				tc.env["TINE_URL"] = tt.gateway.start(t)
			}
			got, code := doctor(t, tc)
			for name, status := range tt.checks {
				if got[name].Status != status {
					t.Errorf("%s: %+v, want %s", name, got[name], status)
				}
			}
			said := got["gateway"].Detail + got["servers"].Detail
			mends := got["gateway"].Mend + got["servers"].Mend
			if code != 0 || !strings.Contains(said, tt.detail) || !strings.Contains(mends, tt.mends) {
				t.Errorf("exit %d, %q, %q", code, said, mends)
			}
		})
	}
}

func TestDoctorGatewayOfTheStateFolder(t *testing.T) {
	fakePath(t, nil)
	tc := newTestCLI(t)
	freeConfig(t, tc, "  a: {builtin: time}\n")
	if got, _ := doctor(t, tc); got["gateway"].Status != driver.FoundOK || !strings.Contains(got["gateway"].Detail, "none runs") {
		t.Errorf("none: %+v", got["gateway"])
	}
	dead := newTestCLI(t)
	freeConfig(t, dead, "  a: {builtin: time}\n")
	if err := writeGatewayFile(dead.env["TINE_STATE"], gatewayFile{URL: "http://127.0.0.1:1", PID: 77}); err != nil {
		t.Fatal(err)
	}
	if got, _ := doctor(t, dead); got["gateway"].Status != driver.FoundWarn || !strings.Contains(got["gateway"].Detail, "process 77") {
		t.Errorf("a dead one: %+v", got["gateway"])
	}
	other := newTestCLI(t)
	freeConfig(t, other, "  a: {builtin: time}\n")
	f := world()
	f.status = func() (any, *api.Error) { return api.Status{Version: "1.2.3"}, nil }
	config := write(t, filepath.Join(t.TempDir(), "other.yaml"), "")
	if err := writeGatewayFile(other.env["TINE_STATE"], gatewayFile{URL: f.start(t), Config: config}); err != nil {
		t.Fatal(err)
	}
	if got, _ := doctor(t, other); got["gateway"].Status != driver.FoundWarn || !strings.Contains(got["gateway"].Mend, "tine doctor --config "+config) {
		t.Errorf("another config: %+v", got["gateway"])
	}
	// Without a file that is named it is the gateway's that is looked at, also when it
	// is broken: then nothing sends back to where one is.
	again := func(named string) map[string]driver.Finding {
		tc := newTestCLI(t)
		tc.env["TINE_STATE"], tc.env["TINE_CONFIG"] = other.env["TINE_STATE"], named
		got, _ := doctor(t, tc)
		return got
	}
	for text, want := range map[string]string{"servers: {a: {builtin: time}}\n": driver.FoundOK, "servrs: {}\n": driver.FoundBroken} {
		write(t, config, text)
		got := again("")
		if got["config"].Status != want || !strings.Contains(got["config"].Detail, config) || got["gateway"].Status != driver.FoundOK {
			t.Errorf("%q: %+v, %+v", text, got["config"], got["gateway"])
		}
	}
	write(t, config, "servrs: {}\n")
	if got := again(config); got["gateway"].Mend != "" {
		t.Errorf("the gateway's own: %+v", got["gateway"])
	}
}
