package srt

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
)

// parse reads settings whose paths begin in a folder, and whose home is the folder's home.
func parse(t *testing.T, dir, text string) *Settings {
	t.Helper()
	s, err := Parse([]byte(text), "settings.json", Options{Dir: dir, Home: filepath.Join(dir, "home")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// folder is an empty folder, by the name that has no link in it.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func put(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func TestValues(t *testing.T) {
	s := parse(t, "/work", `{
	  "network": {
	    "allowedDomains": ["Example.com", "*.npmjs.ORG.", "api.example.com:8443", "[2001:db8::0:1]:443", "127.0.0.1", "localhost"],
	    "deniedDomains": ["*:22", "bad.example.com"]
	  },
	  "filesystem": {
	    "denyRead": ["~/.ssh", "~", "secrets/", "**/.env", "/data/**"],
	    "allowRead": [".", {"path": "/data/[x]", "literal": true}],
	    "allowWrite": ["./out//sub", "/tmp/../var", "src/**"],
	    "denyWrite": ["src/*.lock"]
	  }
	}`)
	for _, tt := range []struct {
		name      string
		got, want []string
	}{
		{"allowedDomains", s.AllowedDomains, []string{"example.com", "*.npmjs.org", "api.example.com:8443", "[2001:db8::1]:443", "127.0.0.1", "localhost"}},
		{"deniedDomains", s.DeniedDomains, []string{"*:22", "bad.example.com"}},
		{"denyRead", s.DenyRead, []string{"/work/home/.ssh", "/work/home", "/work/secrets", "/work/**/.env", "/data"}},
		{"allowRead", s.AllowRead, []string{"/work", "/data/[x]"}},
		{"allowWrite", s.AllowWrite, []string{"/work/out/sub", "/var", "/work/src"}},
		{"denyWrite", s.DenyWrite, []string{"/work/src/*.lock"}},
		{"warnings", s.Warnings, nil},
	} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestEmpty(t *testing.T) {
	for _, text := range []string{`{}`, `{"network": {}, "filesystem": {}}`, `{"network": null, "filesystem": {"denyRead": null}}`} {
		s := parse(t, "/work", text)
		if s.MayReach("example.com", 443) || s.MayReach("127.0.0.1", 80) {
			t.Errorf("%s: something may be reached", text)
		}
		if s.MayWrite("/work/a") || s.Denied("/etc/passwd") || !s.MayRead("/etc/passwd") {
			t.Errorf("%s: reads or writes are not the defaults", text)
		}
		if got := s.ReadFolders(); !slices.Equal(got, []string{"/"}) {
			t.Errorf("%s: read folders %q", text, got)
		}
		if got, err := s.WriteFolders(); len(got) > 0 || err != nil {
			t.Errorf("%s: write folders %q, %v", text, got, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	s := parse(t, "/work", `{"network": {
	"allowLocalBinding": true,
	"allowUnixSockets": ["/run/x.sock", "y.sock"]}}`)
	want := []string{
		"settings.json:2:2: network.allowLocalBinding: has no effect; a kernel has a loopback of its own, and no port of this machine",
		"settings.json:3:2: network.allowUnixSockets: has no effect; a kernel reaches no socket of this machine",
	}
	if !slices.Equal(s.Warnings, want) {
		t.Errorf("warnings %q", s.Warnings)
	}
	if !s.AllowLocalBinding || !slices.Equal(s.AllowUnixSockets, []string{"/run/x.sock", "/work/y.sock"}) {
		t.Errorf("%v, %q", s.AllowLocalBinding, s.AllowUnixSockets)
	}
	if s := parse(t, "/work", `{"network": {"allowLocalBinding": false, "allowUnixSockets": []}}`); len(s.Warnings) > 0 {
		t.Errorf("warnings about nothing: %q", s.Warnings)
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{``, `s.json:1:1: want a JSON object with network and filesystem`},
		{`network: {}`, `s.json:1:1: want a JSON object`},
		{`[]`, `s.json:1:1: want a map of network, filesystem, got a list`},
		{"{\n  \"network\": {\n    \"allowedDomain\": []}}", `s.json:3:5: unknown key "allowedDomain" in network; did you mean "allowedDomains"?`},
		{`{"filesystems": {}}`, `s.json:1:2: unknown key "filesystems"; did you mean "filesystem"?`},
		{`{"mcpServers": {}}`, `s.json:1:2: unknown key "mcpServers"; known keys: network, filesystem`},
		{`{"credentials": {}}`, `s.json:1:2: unknown key "credentials"; srt has it and Tine does not, so that it would not hold; remove it`},
		{`{"network": {"allowAllUnixSockets": true}}`, `s.json:1:14: unknown key "allowAllUnixSockets" in network; srt has it`},
		{`{"filesystem": {"disabled": true}}`, `s.json:1:17: unknown key "disabled" in filesystem; srt has it`},
		{`{"filesystem": {"denyRead": [], "denyRead": []}}`, `key "denyRead" stands twice`},
		{`{"network": []}`, `s.json:1:13: network: want a map of`},
		{`{"network": {"allowedDomains": "example.com"}}`, `s.json:1:32: network.allowedDomains: want a list of strings, got "example.com"`},
		{`{"network": {"allowedDomains": [1]}}`, `network.allowedDomains[0]: want a domain, got 1`},
		{`{"network": {"allowedDomains": ["a.example.com", "*"]}}`, `s.json:1:50: network.allowedDomains[1]: "*": * may only be`},
		{`{"network": {"allowedDomains": ["*.com"]}}`, `too wide`},
		{`{"network": {"allowedDomains": ["a.*.com"]}}`, `* may only be`},
		{`{"network": {"allowedDomains": ["*example.com"]}}`, `* may only be`},
		{`{"network": {"allowedDomains": ["intranet"]}}`, `a dot in it`},
		{`{"network": {"allowedDomains": ["https://example.com"]}}`, `it is a URL`},
		{`{"network": {"allowedDomains": ["example.com/path"]}}`, `without a path`},
		{`{"network": {"allowedDomains": ["10.0.0.0/8"]}}`, `or a network`},
		{`{"network": {"allowedDomains": ["2001:db8::1"]}}`, `in brackets`},
		{`{"network": {"allowedDomains": ["[fe80::1%eth0]"]}}`, `zone`},
		{`{"network": {"allowedDomains": ["[::1]443"]}}`, `after the bracket`},
		{`{"network": {"allowedDomains": ["example.com:0"]}}`, `the port "0"`},
		{`{"network": {"allowedDomains": ["example.com:"]}}`, `the port ""`},
		{`{"network": {"allowedDomains": ["example.com:65536"]}}`, `the port "65536"`},
		{`{"network": {"allowedDomains": ["127.1"]}}`, `like an address`},
		{`{"network": {"allowedDomains": [""]}}`, `no name`},
		{`{"network": {"deniedDomains": ["*.com"]}}`, `too wide`},
		{`{"network": {"allowUnixSockets": true}}`, `network.allowUnixSockets: want a list of paths, got true; srt's key for all sockets`},
		{`{"network": {"allowLocalBinding": "yes"}}`, `want true or false`},
		{`{"filesystem": {"denyRead": [""]}}`, `filesystem.denyRead[0]: the path is empty`},
		{`{"filesystem": {"denyRead": [null]}}`, `want a path, got nothing`},
		{`{"filesystem": {"denyRead": ["a\u0000b"]}}`, `NUL`},
		{`{"filesystem": {"denyRead": [{"path": "/x"}]}}`, `want a path, or {"path"`},
		{`{"filesystem": {"denyRead": [{"path": "/x", "literal": false}]}}`, `want a path, or {"path"`},
		{`{"filesystem": {"denyRead": [{"path": "/x", "literal": true, "more": 1}]}}`, `unknown key "more" in filesystem.denyRead[0]`},
		{`{"filesystem": {"denyRead": ["/x/*/"]}}`, `ends in / matches nothing`},
		{`{"filesystem": {"denyRead": ["*/../x"]}}`, `with .. in it`},
		{`{"filesystem": {"allowWrite": ["src/*.ts"]}}`, `filesystem.allowWrite[0]: a pattern can't be written to`},
		{`{"filesystem": {"allowWrite": ["~x/*"]}}`, `a pattern can't be written to`},
	} {
		s, err := Parse([]byte(tt.text), "s.json", Options{Dir: "/work", Home: "/home/me"})
		var list *config.Error
		if err == nil || !strings.Contains(err.Error(), tt.want) || s != nil || !errors.As(err, &list) {
			t.Errorf("%s: %v, want %s", tt.text, err, tt.want)
		}
	}
	if _, err := Parse([]byte(`{"filesystem": {"denyRead": ["~/x"]}}`), "s.json", Options{Dir: "/work", Home: "none"}); err == nil || !strings.Contains(err.Error(), "no home folder") {
		t.Errorf("without a home: %v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.json"), Options{Dir: "/"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := Parse([]byte(`{}`), "s.json", Options{Dir: "relative"}); err == nil {
		t.Error("paths begin at a folder that is not whole")
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "srt.json")
	if err := os.WriteFile(path, []byte(`{"network": {"allowedDomains": ["example.com"]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := folder(t)
	t.Chdir(dir)
	s, err := Load(path, Options{})
	if err != nil || !s.MayReach("example.com", 1) || s.dir != dir {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestMayReach(t *testing.T) {
	s := parse(t, "/work", `{"network": {
	  "allowedDomains": ["example.com", "*.github.com", "api.example.org:8443", "localhost", "10.0.0.5:5432", "[2001:db8::1]", "*.bad.example.com"],
	  "deniedDomains": ["www.github.com", "*:22", "*.bad.example.com:25", "192.0.2.1"]
	}}`)
	for _, tt := range []struct {
		host string
		port uint16
		want bool
	}{
		{"example.com", 443, true}, {"example.com", 9999, true}, {"EXAMPLE.com.", 80, true}, {"www.example.com", 443, false},
		{"badexample.com", 443, false}, {"example.com.evil.net", 443, false}, {"example.com\x00.github.com", 443, false},
		{"api.github.com", 443, true}, {"a.b.github.com", 443, true}, {"github.com", 443, false}, {"xgithub.com", 443, false},
		{"www.github.com", 443, false}, {"api.github.com", 22, false}, {"example.com", 22, false},
		{"api.example.org", 8443, true}, {"api.example.org", 443, false},
		{"a.bad.example.com", 443, true}, {"a.bad.example.com", 25, false},
		{"localhost", 3000, true}, {"127.0.0.1", 3000, false}, {"127.1", 3000, false}, {"2130706433", 80, false}, {"0x7f000001", 80, false},
		{"10.0.0.5", 5432, true}, {"10.0.0.5", 443, false}, {"::ffff:10.0.0.5", 5432, true}, {"[::ffff:10.0.0.5]", 5432, true}, {"10.0.0.6", 5432, false},
		{"2001:db8::1", 1, true}, {"[2001:db8:0::1]", 1, true}, {"2001:db8::1%eth0", 1, false}, {"::ffff:1.2.3.4%x.github.com", 443, false},
		{"192.0.2.1", 80, false}, {"", 80, false}, {"[example.com]", 443, false}, {"[2001:db8::1", 1, false},
	} {
		if got := s.MayReach(tt.host, tt.port); got != tt.want {
			t.Errorf("%q on %d: %v", tt.host, tt.port, got)
		}
	}
	addr := netip.MustParseAddr
	if s.AllowsAddress(addr("192.0.2.1"), 80) || !s.DeniesAddress(addr("::ffff:192.0.2.1"), 80) || s.DeniesAddress(addr("10.0.0.5"), 5432) || !s.DeniesAddress(addr("10.0.0.5"), 22) {
		t.Error("addresses that names resolve to are judged wrong")
	}
	if all := parse(t, "/", `{"network": {"allowedDomains": ["example.com"], "deniedDomains": ["*"]}}`); all.MayReach("example.com", 443) {
		t.Error("* in deniedDomains does not deny all")
	}
}
