package main

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

// The doctor names the servers that want a sandbox, and looks where the state
// will be.
func TestDoctorSandbox(t *testing.T) {
	fakePath(t, nil)
	tc := newTestCLI(t)
	freeConfig(t, tc, "  a: {command: /bin/sh, sandbox: true}\n  b: {command: x, sandbox: true, enabled: false}\n  c: {command: /bin/sh}\n")
	above := t.TempDir()
	tc.env["TINE_STATE"] = filepath.Join(above, "not", "yet")
	where := ""
	tc.cli.probeSandbox = func(_ context.Context, o sandbox.Options) []sandbox.Step {
		where = o.Dir
		return []sandbox.Step{{Name: "start", OK: true, Needed: true, Detail: "in no time"}}
	}
	got, code := doctor(t, tc)
	if where != above || code != 0 {
		t.Errorf("exit %d; looked in %q, want %q", code, where, above)
	}
	if runtime.GOOS == "linux" && got["sandbox"] != (driver.Found("sandbox", driver.FoundOK, "start: in no time\nservers in sandboxes: a", "")) {
		t.Errorf("%+v", got["sandbox"])
	}
	if !strings.Contains(got["drivers"].Detail, "sandbox") {
		t.Errorf("%+v", got["drivers"])
	}
}

// Servers that can't start fail the doctor, and only where there are any; the check of
// the config says what it can know without a try.
func TestSandboxesThatAreMissing(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // elsewhere such servers are off
	}
	fakePath(t, nil)
	for _, tt := range []struct {
		servers string
		code    int
		status  string
	}{
		{"  a: {command: /bin/sh, sandbox: true}\n  b: {command: x, sandbox: true, enabled: false}\n", exitFailed, driver.FoundBroken},
		{"  a: {command: /bin/sh}\n", 0, driver.FoundMissing},
	} {
		tc := newTestCLI(t)
		freeConfig(t, tc, tt.servers)
		tc.cli.probeSandbox = func(context.Context, sandbox.Options) []sandbox.Step {
			return []sandbox.Step{{Name: "binary", Needed: true, Detail: "not there", Mend: "make build makes it"}}
		}
		got, code := doctor(t, tc)
		ch := got["sandbox"]
		if code != tt.code || ch.Status != tt.status || strings.Contains(ch.Detail, "don't start: a") != (tt.code != 0) || !strings.Contains(ch.Mend, "make build makes it") {
			t.Errorf("%s: exit %d, %+v", tt.servers, code, ch)
		}
	}
	const gone = "sandbox_binary: /no/such/tine-sandbox\n"
	for _, tt := range []struct{ config, want string }{
		{gone + "servers:\n  a: {command: x, sandbox: true}\n  b: {command: x}\n", "these servers don't start, since they want a sandbox: a: /no/such/tine-sandbox"},
		{gone + "servers:\n  b: {command: x}\n", "warning: /no/such/tine-sandbox is not tine-sandbox"},
		{"servers:\n  a: {command: x, sandbox: true}\n", "nor beside tine in "}, // beside this test
		{"servers:\n  b: {command: x}\n", ""},
	} {
		path := write(t, filepath.Join(t.TempDir(), "tine.yaml"), tt.config)
		_, stderr, code := run(t, "", "config", "check", path)
		if code != 0 || !strings.Contains(stderr, tt.want) || tt.want == "" && stderr != "" {
			t.Errorf("%s: exit %d, %q", tt.config, code, stderr)
		}
		stdout, _, _ := run(t, "", "config", "check", "--json", path)
		if strings.Contains(stdout, `"warnings"`) != (tt.want != "") {
			t.Errorf("%s: %s", tt.config, stdout)
		}
	}
}

// What fetches packages for a sandbox is another program than the one that its
// config names.
func TestDoctorFetched(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // elsewhere such servers are off
	}
	for _, tt := range []struct {
		server  string
		there   []string
		missing string
	}{
		{"command: npx, args: [-y, p]", nil, "node is not found"},
		{"command: npx, args: [-y, p]", []string{"node"}, "npm, which is not found"},
		{"command: npx, args: [-y, p]", []string{"node", "npm"}, ""},
		{"command: npx, args: [-c, 'a b']", []string{"node", "npm"}, "a line of shell"},
		{"command: uvx, args: [p]", []string{"node"}, "neither uv nor Python"},
		{"command: uvx, args: [p]", []string{"python3"}, ""},
		{"command: uvx, args: [p]", []string{"uv"}, ""},
		{"command: /opt/node/bin/npx, args: [p]", nil, ""},
		{"command: server", nil, "server"},
		{"command: server, cwd: /srv", []string{"server"}, ""},
	} {
		scripts := map[string]string{}
		for _, name := range tt.there {
			scripts[name] = "echo 20.1.0"
		}
		fakePath(t, scripts)
		tc := newTestCLI(t)
		freeConfig(t, tc, "  a: {"+tt.server+", sandbox: true}\n")
		got, _ := doctor(t, tc)
		ch, found := got["server a"]
		if found != (tt.missing != "") || found && (ch.Status != driver.FoundMissing || !strings.Contains(ch.Detail, tt.missing)) {
			t.Errorf("%s with %q: %+v", tt.server, tt.there, ch)
		}
	}
	// In a root of its own a program is not looked for on this machine.
	fakePath(t, nil)
	tc := newTestCLI(t)
	freeConfig(t, tc, "  a: {command: server, sandbox: {root: "+t.TempDir()+"}}\n  b: {command: server, sandbox: {root: /no/such/root}}\n")
	got, _ := doctor(t, tc)
	if got["server a"].Status != "" || !strings.Contains(got["server b"].Mend, "servers.b.sandbox.root") {
		t.Errorf("%+v, %+v", got["server a"], got["server b"])
	}
}
