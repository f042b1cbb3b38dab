package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// fakePath is a PATH of just these programs, shell scripts by name.
func fakePath(t *testing.T, scripts map[string]string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the programs here are shell scripts")
	}
	dir := t.TempDir()
	for name, body := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "none.sock"))
}

// doctor runs tine doctor in an empty folder and returns its checks by name.
func doctor(t *testing.T, tc *testCLI) (map[string]driver.Finding, int) {
	t.Helper()
	t.Chdir(t.TempDir())
	tc.args = append(tc.args, "doctor", "--json")
	code := tc.cli.run(t.Context())
	var r doctorReport
	if err := json.Unmarshal(tc.out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s%s", err, tc.out.String(), tc.err.String())
	}
	if r.OK != (code == 0) {
		t.Errorf("ok is %v and the exit code %d", r.OK, code)
	}
	checks := map[string]driver.Finding{}
	for _, ch := range r.Checks {
		if ch.Status != driver.FoundOK && ch.Status != driver.FoundWarn && ch.Mend == "" {
			t.Errorf("%s is %s and nothing says what to do", ch.Name, ch.Status)
		}
		checks[ch.Name] = ch
	}
	return checks, code
}

// freeConfig makes the doctor look at a port that is free.
func freeConfig(t *testing.T, tc *testCLI, more string) {
	t.Helper()
	tc.env["TINE_CONFIG"] = write(t, filepath.Join(t.TempDir(), "tine.yaml"), "listen: 127.0.0.1:0\nservers:\n"+more)
}

func TestDoctorPrograms(t *testing.T) {
	tests := []struct {
		name    string
		scripts map[string]string
		want    map[string]string // status by check
	}{
		{"nothing there", nil, map[string]string{"node": driver.FoundMissing, "npx": driver.FoundMissing, "python": driver.FoundMissing, "uv": driver.FoundMissing, "uvx": driver.FoundMissing, "docker": driver.FoundMissing}},
		{"all there", map[string]string{
			"node": "echo v22.1.0", "npx": "echo 10.2.3", "python3": "echo Python 3.11.2", "uv": "echo uv 0.5.1", "uvx": "echo uvx 0.5.1", "docker": "echo 27.0.1",
		}, map[string]string{"node": driver.FoundOK, "npx": driver.FoundOK, "python": driver.FoundOK, "uv": driver.FoundOK, "uvx": driver.FoundOK, "docker": driver.FoundOK}},
		{"old", map[string]string{"node": "echo v16.20.0", "python3": "echo Python 3.9.2 >&2"}, map[string]string{"node": driver.FoundWarn, "python": driver.FoundWarn}},
		{"old before new", map[string]string{"python3": "echo Python 3.9.2", "python": "echo Python 3.12.0"}, map[string]string{"python": driver.FoundOK}},
		{"broken", map[string]string{"node": "echo no library >&2; exit 127", "python3": "echo hello", "docker": "echo cannot connect >&2; exit 1"}, map[string]string{"node": driver.FoundWarn, "python": driver.FoundWarn, "docker": driver.FoundWarn}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fakePath(t, tt.scripts)
			tc := newTestCLI(t)
			freeConfig(t, tc, "  a: {builtin: time}\n")
			got, code := doctor(t, tc)
			for name, status := range tt.want {
				if got[name].Status != status {
					t.Errorf("%s: got %+v, want %s", name, got[name], status)
				}
			}
			// Servers may need them; serve does not.
			if code != 0 {
				t.Errorf("exit %d: %s", code, tc.out.String())
			}
		})
	}
}

func TestDoctorConfig(t *testing.T) {
	fakePath(t, nil)
	tc := newTestCLI(t)
	freeConfig(t, tc, "  a: {command: no-such-program}\n  b: {command: other, enabled: false}\n  c: {url: 'https://x.example/${NO_SUCH}'}\n")
	got, code := doctor(t, tc)
	if got["config"].Status != driver.FoundWarn || !strings.Contains(got["config"].Detail, "NO_SUCH") || code != 0 {
		t.Errorf("exit %d, config %+v", code, got["config"])
	}
	if ch := got["server a"]; ch.Status != driver.FoundMissing || !strings.Contains(ch.Detail, "no-such-program") || !strings.Contains(ch.Mend, "servers.a.command") {
		t.Errorf("server a: %+v", ch)
	}
	if ch, ok := got["server b"]; ok {
		t.Errorf("a server that is off was looked at: %+v", ch)
	}

	tc = newTestCLI(t)
	freeConfig(t, tc, "  a: {comand: x}\n")
	if got, code := doctor(t, tc); got["config"].Status != driver.FoundBroken || code != exitFailed {
		t.Errorf("exit %d, config %+v", code, got["config"])
	}
	tc = newTestCLI(t)
	tc.env["TINE_CONFIG"] = "/nonexistent/tine.yaml"
	if got, code := doctor(t, tc); got["config"].Status != driver.FoundBroken || code != exitFailed {
		t.Errorf("exit %d, config %+v", code, got["config"])
	}
}

func TestDoctorAgents(t *testing.T) {
	for _, tt := range []struct {
		programs   map[string]string
		agents     map[string]string
		want, says string
	}{
		{nil, nil, "", ""},
		{map[string]string{"claude": "true"}, map[string]string{"a": "description: A\n"}, driver.FoundOK, "1 blueprint; executors run claude"},
		{nil, map[string]string{"a": "description: A\n"}, driver.FoundMissing, "not found: claude, of the executor claude-code"},
		{map[string]string{"claude": "true"}, map[string]string{"a": "descripton: A\n", "b": "description: B\n"}, driver.FoundWarn, "2 blueprints; executors run claude, 1 with mistakes"},
		{nil, map[string]string{"a": "executor: command\nexecutor_config: {command: sh}\n"}, driver.FoundOK, "1 blueprint"},
	} {
		fakePath(t, tt.programs)
		tc := newTestCLI(t)
		freeConfig(t, tc, "  a: {builtin: time}\n")
		tc.env["PATH"] = os.Getenv("PATH")
		for name, text := range tt.agents {
			write(t, filepath.Join(filepath.Dir(tc.env["TINE_CONFIG"]), "agents", name+".yaml"), text)
		}
		got, code := doctor(t, tc)
		if ch := got["agents"]; ch.Status != tt.want || ch.Detail != tt.says && !strings.HasSuffix(ch.Detail, tt.says) || code != 0 {
			t.Errorf("%v with %v: exit %d, %+v", tt.agents, tt.programs, code, ch)
		}
	}
}

func TestDoctorState(t *testing.T) {
	fakePath(t, nil)
	tc := newTestCLI(t)
	freeConfig(t, tc, "  a: {builtin: time}\n")
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	tc.env["TINE_STATE"] = dir
	if got, code := doctor(t, tc); got["state"].Status == driver.FoundBroken || code != 0 || !strings.Contains(got["state"].Detail, "made at first use") {
		t.Errorf("exit %d, %+v", code, got["state"])
	}
	if _, err := os.Stat(filepath.Dir(dir)); err == nil {
		t.Error("the doctor made the state folder")
	}
	// A file where a folder should be stops even root.
	tc = newTestCLI(t)
	freeConfig(t, tc, "  a: {builtin: time}\n")
	tc.env["TINE_STATE"] = filepath.Join(write(t, filepath.Join(t.TempDir(), "file"), ""), "state")
	if got, code := doctor(t, tc); got["state"].Status != driver.FoundBroken || code != exitFailed {
		t.Errorf("exit %d, %+v", code, got["state"])
	}
}

func TestDoctorPort(t *testing.T) {
	fakePath(t, nil)
	refuses := &fakeGateway{status: func() (any, *api.Error) {
		return nil, &api.Error{Kind: api.KindRefused, Message: "token wanted", Status: 401}
	}}
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"status":"ok"}`) }))
	t.Cleanup(stranger.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { silent.Close() })
	for _, tt := range []struct {
		name, url, status, detail string
	}{
		{"tine", world().start(t), driver.FoundOK, "a running tine 1.2.3, process 42"},
		{"tine that wants a token", refuses.start(t), driver.FoundOK, "a running tine"},
		{"a stranger", stranger.URL, driver.FoundBroken, "another program"},
		{"one that hangs up", "http://" + silent.Addr().String(), driver.FoundBroken, "another program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tc := newTestCLI(t)
			tc.env["TINE_CONFIG"] = write(t, filepath.Join(t.TempDir(), "tine.yaml"), "listen: "+strings.TrimPrefix(tt.url, "http://")+"\nservers:\n  a: {builtin: time}\n")
			got, _ := doctor(t, tc)
			if got["port"].Status != tt.status || !strings.Contains(got["port"].Detail, tt.detail) {
				t.Errorf("got %+v", got["port"])
			}
		})
	}
	tc := newTestCLI(t)
	freeConfig(t, tc, "  a: {builtin: time}\n")
	if got, _ := doctor(t, tc); got["port"].Status != driver.FoundOK || !strings.Contains(got["port"].Detail, "free") {
		t.Errorf("got %+v", got["port"])
	}
}

func TestDoctorDockerSocket(t *testing.T) {
	fakePath(t, map[string]string{"docker": "exit 1"})
	dir, err := os.MkdirTemp("", "tine") // short: socket paths are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "d.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/version") {
			fmt.Fprint(w, `{"Version":"20.10.24"}`)
		}
	})}}
	s.Start()
	t.Cleanup(s.Close)
	tc := newTestCLI(t)
	freeConfig(t, tc, "  a: {builtin: time}\n")
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "d.sock"))
	if got, _ := doctor(t, tc); got["docker"].Status != driver.FoundOK || !strings.Contains(got["docker"].Detail, "20.10.24") {
		t.Errorf("got %+v", got["docker"])
	}
}

func TestDoctorForPeople(t *testing.T) {
	fakePath(t, map[string]string{"node": "echo v22.1.0"})
	t.Chdir(t.TempDir())
	tc := newTestCLI(t, "doctor")
	freeConfig(t, tc, "  a: {builtin: time}\n")
	code := tc.cli.run(t.Context())
	out := tc.out.String()
	for _, want := range []string{"ok       node     22.1.0 at ", "ok       drivers  builtin, process, remote, url\n", "missing  uvx ", "-> install uv", "missing  sandbox  namespaces: this is a test\n                  what is left: builtin, process, remote, url\n                  -> run it yourself; "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestDoctorDrivers(t *testing.T) {
	tc := newTestCLI(t, "doctor", "--json")
	freeConfig(t, tc, "  a: {builtin: time}\n")
	fakePath(t, nil)
	t.Chdir(t.TempDir())
	tc.cli.run(t.Context())
	var r doctorReport
	if err := json.Unmarshal(tc.out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Drivers) < 3 || !slices.IsSorted(r.Drivers) {
		t.Errorf("drivers %q", r.Drivers)
	}
	left, err := filepath.Glob(filepath.Join(tc.env["TINE_STATE"], ".tine-doctor*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the state folder: %q, %v", left, err)
	}

	all := []string{"builtin", "docker", "process", "remote", "sandbox", "url"}
	for _, tt := range []struct {
		name   string
		in     surroundings
		left   string
		status string
		detail string
	}{
		{"a plain machine", surroundings{drivers: all, roots: true}, "builtin process remote url", driver.FoundOK, "builtin, process, remote, url"},
		{"with an engine", surroundings{drivers: all, roots: true, engine: true}, "builtin docker process remote url", driver.FoundOK, "builtin, docker, process, remote, url"},
		{"with sandboxes", surroundings{drivers: all, roots: true, sandboxes: true}, "builtin process remote sandbox url", driver.FoundOK, "builtin, process, remote, sandbox, url"},
		{"a bare image", surroundings{drivers: all, roots: true, bare: true}, "builtin process remote url", driver.FoundOK, "in this image"},
		{"no pipes", surroundings{drivers: all, roots: true, bare: true, pipes: errors.New("not on FAT")}, "builtin remote url", driver.FoundWarn, "builtin, remote, url\nprocess does not work: not on FAT"},
		{"no authorities", surroundings{drivers: all}, "builtin process remote url", driver.FoundWarn, "no certificate authorities"},
	} {
		ch := tt.in.check()
		if ch.Status != tt.status || !strings.Contains(ch.Detail, tt.detail) || (ch.Mend == "") != (tt.status == driver.FoundOK) {
			t.Errorf("%s: %+v", tt.name, ch)
		}
		if got := strings.Join(tt.in.left(), " "); got != tt.left {
			t.Errorf("%s: left are %s", tt.name, got)
		}
	}
}

func TestDoctorGathers(t *testing.T) {
	got := gather([]driver.Finding{driver.Found("node", driver.FoundMissing, "x", "y"), driver.Found("python", driver.FoundOK, "3.12", ""), driver.Found("uv", driver.FoundMissing, "x", "y"), driver.Found("docker", driver.FoundWarn, "x", "y")})
	if len(got) != 3 || got[0].Name != "python" || got[1].Name != "docker" || !strings.Contains(got[2].Detail, "node, uv") || got[2].Status != driver.FoundMissing {
		t.Errorf("%+v", got)
	}
	if got := gather([]driver.Finding{driver.Found("node", driver.FoundOK, "22", "")}); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}
