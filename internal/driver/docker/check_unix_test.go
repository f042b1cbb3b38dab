//go:build unix

package docker

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

var versioned = regexp.MustCompile(`^/v[0-9.]+`)

// fakePath is a PATH of just these programs, shell scripts by name.
func fakePath(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, body := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// fakeEngine answers as an engine does, by path, at a socket.
func fakeEngine(t *testing.T, answers map[string]string) string {
	t.Helper()
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
		answer, ok := answers[versioned.ReplaceAllString(r.URL.Path, "")]
		if r.URL.Path == "/_ping" {
			w.Header().Set("Api-Version", "1.41")
			return
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"message":"no such thing"}`
		}
		fmt.Fprint(w, answer)
	})}}
	s.Start()
	t.Cleanup(s.Close)
	return "unix://" + filepath.Join(dir, "d.sock")
}

func TestCheck(t *testing.T) {
	const version = `{"Version":"20.10.24","ApiVersion":"1.41","Components":[{"Name":"Engine"}]}`
	const info = `{"Runtimes":{"runc":{},"crun":{}},"MemoryLimit":true,"PidsLimit":true,"CpuCfsQuota":true}`
	one := func(d Config) []config.Server {
		return []config.Server{{ID: "duck", Enabled: true, Options: &d}}
	}
	for _, tt := range []struct {
		name    string
		answers map[string]string
		servers []config.Server
		scripts map[string]string
		status  string
		say     []string // in the detail
		mend    string
	}{
		{"no server needs it", map[string]string{"/version": version}, nil, nil, driver.FoundOK, []string{"engine 20.10.24, API 1.41, at /"}, ""},
		{"all there", map[string]string{"/version": version, "/info": info, "/images/lab/duck:1/json": "{}"},
			one(Config{Image: "lab/duck:1", Pull: PullNever, Runtime: "crun"}), nil, driver.FoundOK, nil, ""},
		{"to be pulled", map[string]string{"/version": version, "/info": info}, one(Config{Image: "duck", Pull: PullMissing}), nil, driver.FoundOK, nil, ""},
		{"no image", map[string]string{"/version": version, "/info": info}, one(Config{Image: "duck", Pull: PullNever}), nil,
			driver.FoundWarn, []string{`server "duck": image "duck" is not there`}, "load or build"},
		{"no runtime", map[string]string{"/version": version, "/info": info, "/images/duck/json": "{}"}, one(Config{Image: "duck", Runtime: "runsc"}), nil,
			driver.FoundWarn, []string{`runtime "runsc" is not among the engine's: crun, runc`}, "register runtime runsc"},
		{"no limits", map[string]string{"/version": version, "/info": `{"MemoryLimit":false,"PidsLimit":false}`, "/images/duck/json": "{}"}, one(Config{Image: "duck"}), nil,
			driver.FoundWarn, []string{"can't bound memory", "can't bound processes"}, "cgroups"},
		{"closed", map[string]string{"/version": version}, one(Config{Image: "duck"}), nil, driver.FoundWarn, []string{"does not say what it can do"}, "may use it"},
		{"no client", map[string]string{"/version": version}, []config.Server{{ID: "a", Enabled: true, Command: "docker"}}, nil, driver.FoundWarn, []string{"not found on PATH"}, "docker client"},
		{"a client", map[string]string{"/version": version}, []config.Server{{ID: "a", Enabled: true, Command: "docker"}}, map[string]string{"docker": "exit 1"}, driver.FoundOK, []string{"client at "}, ""},
		{"podman", map[string]string{"/version": `{"Version":"4.3.1","ApiVersion":"1.41","Components":[{"Name":"Podman Engine"}]}`}, nil, nil, driver.FoundOK, []string{"engine Podman 4.3.1"}, ""},
		{"something else", map[string]string{"/version": `<html>`}, one(Config{}), nil, driver.FoundMissing, []string{"no engine answers"}, "these servers want it: duck"},
		{"something else, and a client that knows better", map[string]string{}, one(Config{}), map[string]string{"docker": "echo 27.0.1"}, driver.FoundWarn, []string{"27.0.1"}, "DOCKER_HOST"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fakePath(t, tt.scripts)
			host := fakeEngine(t, tt.answers)
			t.Setenv("DOCKER_HOST", host)
			ch, answers := Check(t.Context(), "", tt.servers)
			if want := strings.HasPrefix(ch.Detail, "engine ") && !strings.Contains(ch.Detail, "context"); answers != want {
				t.Errorf("answers: %v; %+v", answers, ch)
			}
			if ch.Name != "docker" || ch.Status != tt.status || !strings.Contains(ch.Mend, tt.mend) || tt.status != driver.FoundOK && ch.Mend == "" {
				t.Errorf("got %+v, want %s and to mend by %q", ch, tt.status, tt.mend)
			}
			for _, want := range tt.say {
				if !strings.Contains(ch.Detail, want) {
					t.Errorf("%q is not in %q", want, ch.Detail)
				}
			}
		})
	}
}

// TestCheckOfAllEngines holds that each engine that the config names is looked at,
// for the servers that are on it.
func TestCheckOfAllEngines(t *testing.T) {
	fakePath(t, nil)
	there := fakeEngine(t, map[string]string{"/version": `{"Version":"1"}`, "/info": `{"MemoryLimit":true,"PidsLimit":true,"CpuCfsQuota":true}`})
	gone := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	servers := []config.Server{
		{ID: "a", Enabled: true, Options: &Config{Host: there, Image: "x"}},
		{ID: "b", Enabled: true, Options: &Config{Host: gone, Image: "x"}},
		{ID: "c", Enabled: true, Options: &Config{Host: gone, Image: "x"}},
		{ID: "e", Enabled: true, Options: &Config{Host: "npipe:////./pipe/x", Image: "x"}},
		{ID: "f", Enabled: true, Options: &Config{Host: "tcp://me:hunter2@127.0.0.1:1", Image: "x"}},
	}
	t.Setenv("DOCKER_HOST", gone)
	got := map[string]driver.Finding{}
	for _, host := range Hosts(servers) {
		ch, _ := Check(t.Context(), host, servers)
		got[ch.Name] = ch
	}
	if text := fmt.Sprint(got); strings.Contains(text, "hunter2") {
		t.Errorf("a secret is shown: %s", text)
	}
	if len(got) != 5 {
		t.Errorf("%d engines: %+v", len(got), got)
	}
	for name, want := range map[string]string{"docker": driver.FoundMissing, "docker " + there: driver.FoundOK, "docker " + gone: driver.FoundMissing, "docker npipe:////./pipe/x": driver.FoundMissing} {
		if got[name].Status != want {
			t.Errorf("%s: %+v, want %s", name, got[name], want)
		}
	}
	if mend := got["docker "+gone].Mend; !strings.Contains(mend, "b, c") {
		t.Errorf("mend %q", mend)
	}
}
