package main

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func TestFindingTheGateway(t *testing.T) {
	tokens := make(map[string]string) // by the host asked
	var mu sync.Mutex
	gateway := func() string {
		f := world()
		f.seen = func(r *http.Request) {
			mu.Lock()
			tokens[r.Host] = r.Header.Get("Authorization")
			mu.Unlock()
		}
		return f.start(t)
	}
	a, b := gateway(), gateway()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("  from-token-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		args  []string
		env   map[string]string
		asked string
		token string
	}{
		{"by its file", nil, nil, a, "Bearer file-token"},
		{"flag, another gateway: the file's token stays here", []string{"--url", b}, nil, b, ""},
		{"environment, another gateway", nil, map[string]string{"TINE_URL": b}, b, ""},
		{"flag before environment", []string{"--url", a + "/"}, map[string]string{"TINE_URL": b}, a, "Bearer file-token"},
		{"token of the environment", nil, map[string]string{"TINE_TOKEN": "env-token"}, a, "Bearer env-token"},
		{"token of a flag", []string{"--token", "flag-token"}, map[string]string{"TINE_TOKEN": "env-token"}, a, "Bearer flag-token"},
		{"token of a file", []string{"--url", b, "--token-file", file}, map[string]string{"TINE_TOKEN": "env-token"}, b, "Bearer from-token-file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clear(tokens)
			tc := newTestCLI(t, append(tt.args, "servers")...)
			for k, v := range tt.env {
				tc.env[k] = v
			}
			if err := writeGatewayFile(tc.env["TINE_STATE"], gatewayFile{URL: a, Token: "file-token", PID: 7}); err != nil {
				t.Fatal(err)
			}
			if code := tc.cli.run(t.Context()); code != 0 {
				t.Fatalf("exit %d: %s", code, tc.err.String())
			}
			host := strings.TrimPrefix(tt.asked, "http://")
			if got, ok := tokens[host]; !ok || got != tt.token || len(tokens) != 1 {
				t.Errorf("asked with %q; want %s with %q", tokens, host, tt.token)
			}
		})
	}
}

func TestGatewayThatIsGone(t *testing.T) {
	tc := newTestCLI(t, "servers")
	if err := writeGatewayFile(tc.env["TINE_STATE"], gatewayFile{URL: "http://127.0.0.1:1", PID: 4711}); err != nil {
		t.Fatal(err)
	}
	code := tc.cli.run(t.Context())
	for _, want := range []string{"http://127.0.0.1:1", "process 4711", "tine serve"} {
		if !strings.Contains(tc.err.String(), want) {
			t.Errorf("%q lacks %q", tc.err.String(), want)
		}
	}
	if code != exitFailed {
		t.Errorf("exit %d", code)
	}
}

// TestNoGatewayFile holds which address is asked where no gateway runs on the state
// folder, and that the failure says where the address is from.
func TestNoGatewayFile(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	for _, tt := range []struct {
		name, config string
		args         []string
		want         []string
	}{
		{"the config's address", "listen: " + free, nil, []string{"no gateway at http://" + free, "is the one in "}},
		{"every interface", "listen: 0.0.0.0:" + free[strings.LastIndex(free, ":")+1:] + "\nauth: {tokens: [{name: a, token: secretsecretsecret}]}", nil, []string{"no gateway at http://" + free}},
		{"a flag goes first", "listen: 127.0.0.1:2", []string{"--url", "http://" + free}, []string{"no gateway at http://" + free}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tc := newTestCLI(t, append(tt.args, "status")...)
			path := filepath.Join(t.TempDir(), "tine.yaml")
			if err := os.WriteFile(path, []byte(tt.config), 0o600); err != nil {
				t.Fatal(err)
			}
			tc.env["TINE_CONFIG"] = path
			code := tc.cli.run(t.Context())
			for _, want := range tt.want {
				if !strings.Contains(tc.err.String(), want) {
					t.Errorf("%q lacks %q", tc.err.String(), want)
				}
			}
			if code != exitFailed || strings.Contains(tc.err.String(), "8463") {
				t.Errorf("exit %d: %s", code, tc.err.String())
			}
		})
	}
}

func TestBrokenGatewayFile(t *testing.T) {
	for _, content := range []string{"", "{", `{"pid":1}`} {
		tc := newTestCLI(t, "servers")
		path := filepath.Join(tc.env["TINE_STATE"], gatewayFileName)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if code := tc.cli.run(t.Context()); code != exitFailed || !strings.Contains(tc.err.String(), path) {
			t.Errorf("%q: exit %d, %s", content, code, tc.err.String())
		}
		// A gateway that is named does not need the file.
		tc = newTestCLI(t, "servers", "--url", world().start(t))
		if err := os.WriteFile(filepath.Join(tc.env["TINE_STATE"], gatewayFileName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if code := tc.cli.run(t.Context()); code != 0 {
			t.Errorf("%q: exit %d, %s", content, code, tc.err.String())
		}
	}
}

func TestGatewayFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := readGatewayFile(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := removeGatewayFile(dir, 1); err != nil {
		t.Errorf("remove nothing: %v", err)
	}
	want := gatewayFile{URL: "http://127.0.0.1:8463", Token: "t", PID: 1, Config: "/x/tine.yaml"}
	for range 2 {
		if err := writeGatewayFile(dir, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readGatewayFile(dir)
	if err != nil || *got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	info, err := os.Stat(filepath.Join(dir, gatewayFileName))
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("left over: %v", all)
	}
	if err := removeGatewayFile(dir, 2); err != nil {
		t.Error(err)
	}
	if _, err := readGatewayFile(dir); err != nil {
		t.Errorf("another's file was removed: %v", err)
	}
	if err := removeGatewayFile(dir, 1); err != nil {
		t.Error(err)
	}
	if _, err := readGatewayFile(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if err := writeGatewayFile(filepath.Join(dir, "none"), want); err == nil {
		t.Error("wrote into a folder that is not there")
	}
}

// A reader never sees a part of the file.
func TestGatewayFileIsWhole(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open can't be replaced there")
	}
	dir := t.TempDir()
	long := gatewayFile{URL: "http://x", Token: strings.Repeat("t", 1<<16)}
	if err := writeGatewayFile(dir, long); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 50 {
				if err := writeGatewayFile(dir, long); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		if g, err := readGatewayFile(dir); err != nil || len(g.Token) != 1<<16 {
			t.Fatalf("%v", err)
		}
	}
	wg.Wait()
}

func TestDefaultFolders(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths are written the other way there")
	}
	for _, tt := range []struct {
		goos          string
		env           map[string]string
		state, config string
	}{
		{"linux", map[string]string{"HOME": "/h"}, "/h/.local/state/tine", "/h/.config"},
		{"linux", map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}, "/s/tine", "/c"},
		{"linux", map[string]string{"HOME": "/h", "XDG_STATE_HOME": "s", "XDG_CONFIG_HOME": "c"}, "/h/.local/state/tine", "/h/.config"},
		{"linux", nil, "", ""},
		{"darwin", map[string]string{"HOME": "/h"}, "/h/Library/Application Support/tine", "/h/.config"},
		{"windows", map[string]string{"LOCALAPPDATA": "/l", "APPDATA": "/a"}, "/l/tine", "/a"},
		{"windows", map[string]string{"USERPROFILE": "/u"}, "/u/AppData/Local/tine", ""},
	} {
		getenv := func(k string) string { return tt.env[k] }
		if got := defaultStateDir(tt.goos, getenv); got != tt.state {
			t.Errorf("%s %v: state %q, want %q", tt.goos, tt.env, got, tt.state)
		}
		if got := userConfigDir(tt.goos, getenv); got != tt.config {
			t.Errorf("%s %v: config %q, want %q", tt.goos, tt.env, got, tt.config)
		}
	}
	tc := newTestCLI(t)
	delete(tc.env, "TINE_STATE")
	if _, err := tc.stateDir(); err == nil || !strings.Contains(err.Error(), "TINE_STATE") {
		t.Errorf("without a home: %v", err)
	}
	tc.flags.state = "rel"
	if dir, err := tc.stateDir(); err != nil || !filepath.IsAbs(dir) {
		t.Errorf("relative: %q, %v", dir, err)
	}
}
