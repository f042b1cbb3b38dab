//go:build unix

package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// project makes a folder with a config whose only server has the given sandbox, and
// files beside it.
func project(t *testing.T, sandbox string, more ...string) (dir, path string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"conf/token": "secret", "conf/vars.env": "A=b", "conf/key.pem": "k", "conf/cert.pem": "c", "conf/ca.pem": "c", "conf/data/x": "x", "elsewhere/x": "x",
		"conf/tine.yaml": "tls: {cert: cert.pem, key: key.pem}\n" + strings.Join(more, "") + "servers:\n" +
			"  other: {url: \"https://x.example.org/mcp\", ca_file: ca.pem, headers: {X: \"${file:token}\"}}\n" +
			"  a: {command: x, env_file: vars.env, sandbox: {" + sandbox + "}}\n",
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, filepath.Join(dir, "conf/tine.yaml")
}

func TestPrivateFiles(t *testing.T) {
	dir, path := project(t, "")
	c, err := Load(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := c.Private()
	slices.Sort(got)
	var want []string
	for _, name := range []string{"key.pem", "tine.yaml", "token", "vars.env"} {
		want = append(want, filepath.Join(dir, "conf", name))
	}
	if !slices.Equal(got, want) {
		t.Errorf("private are %v, want %v", got, want)
	}
	long := strings.Repeat("x", 5000)
	text := "servers:\n  a: {command: x, env: {A: '${file:.}', B: '${file:later}', C: '${file:" + long + "}'}, sandbox: true}\n"
	if c, err = Parse([]byte(text), Options{Path: path}); err != nil {
		t.Fatal(err)
	}
	if got, want := c.Private(), []string{path, filepath.Join(dir, "conf/later")}; !slices.Equal(got, want) {
		t.Errorf("with files that can't be read private are %v, want %v", got, want)
	}
	t.Chdir(filepath.Dir(path))
	if c, err = Load("tine.yaml", Options{}); err != nil || c.Private()[0] != path {
		t.Errorf("of a relative path private are %v, %v", c.Private(), err)
	}
}

// A sandbox that can write to the config chooses what the gateway runs outside of it.
func TestWhatTheGatewayTrustsCannotBeWritten(t *testing.T) {
	link := func(make func(from, to string) error, from, to string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := make(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		sandbox string
		before  func(t *testing.T, dir string)
		path    string // of the config, where it is another
		want    string // what the error has; empty for none
	}{
		"its folder":                 {sandbox: `allow_write: ["."]`, want: "conf/tine.yaml:4:63: servers.a.sandbox.allow_write[0]: holds DIR/conf/tine.yaml, the gateway's config,"},
		"a folder above":             {sandbox: `allow_write: [".."]`, want: "the gateway's config,"},
		"the file":                   {sandbox: `allow_write: [tine.yaml]`, want: "the gateway's config,"},
		"the variables":              {sandbox: `allow_write: [vars.env]`, want: "DIR/conf/vars.env, which the config reads,"},
		"an included file":           {sandbox: `allow_write: [token]`, want: "DIR/conf/token, which the config reads,"},
		"the key":                    {sandbox: `allow_write: [key.pem]`, want: "the key of tls,"},
		"the certificate":            {sandbox: `allow_write: [cert.pem]`, want: "the certificate of tls,"},
		"whom it trusts":             {sandbox: `allow_write: [ca.pem]`, want: "the ca_file of servers.other,"},
		"a folder below":             {sandbox: `allow_write: [data]`},
		"a folder beside":            {sandbox: `allow_write: [../elsewhere]`},
		"what it reads":              {sandbox: `allow_read: [".", ".."]`},
		"the config to read":         {sandbox: `allow_read: [tine.yaml]`, want: "servers.a.sandbox.allow_read[0]: is DIR/conf/tine.yaml, the gateway's config, and no sandbox sees that"},
		"a certificate to read":      {sandbox: `allow_read: [ca.pem]`},
		"a link to its folder":       {sandbox: `allow_write: [../link]`, before: link(os.Symlink, "conf", "link"), want: "the gateway's config,"},
		"where a link to it is":      {sandbox: `allow_write: [../elsewhere]`, before: link(os.Symlink, "conf/tine.yaml", "elsewhere/t.yaml"), path: "elsewhere/t.yaml", want: "/elsewhere/t.yaml, the gateway's config,"},
		"where a link leads to":      {sandbox: `allow_write: [../conf]`, before: link(os.Symlink, "conf/tine.yaml", "elsewhere/t.yaml"), path: "elsewhere/t.yaml", want: "the gateway's config,"},
		"a link on the way to it":    {sandbox: `allow_write: [..]`, before: link(os.Symlink, "conf", "elsewhere/c"), path: "elsewhere/c/tine.yaml", want: "the gateway's config,"},
		"another name of it":         {sandbox: `allow_write: [../elsewhere]`, before: link(os.Link, "conf/tine.yaml", "elsewhere/t.yaml"), want: "holds a hard link to DIR/conf/tine.yaml"},
		"another name, to read":      {sandbox: `allow_read: [../elsewhere/t.yaml]`, before: link(os.Link, "conf/tine.yaml", "elsewhere/t.yaml"), want: "no sandbox sees that"},
		"another name that is aside": {sandbox: `allow_write: [data]`, before: link(os.Link, "conf/tine.yaml", "elsewhere/t.yaml")},
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := project(t, tt.sandbox)
			if tt.before != nil {
				tt.before(t, dir)
			}
			if tt.path != "" {
				path = filepath.Join(dir, tt.path)
			}
			_, err := Load(path, Options{})
			want := strings.ReplaceAll(tt.want, "DIR", dir)
			switch {
			case want == "" && err != nil:
				t.Error(err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// A template of sessions holds none of the gateway's secrets.
func TestSecretsAreNotCopiedIntoSessions(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"conf/data", "elsewhere"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "conf/token"), []byte("token-0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ yaml, want, warning string }{
		"a workspace":              {yaml: withToken + "workspace: .\n", want: "workspace: holds DIR/conf/tine.yaml, the gateway's config, of which each session would get a copy"},
		"a workspace above":        {yaml: withToken + "workspace: {template: ..}\n", want: "workspace.template: holds DIR/conf/tine.yaml"},
		"a state":                  {yaml: withToken + "servers: {a: {command: x, state: {d: .}}}\n", want: "servers.a.state.d: holds DIR/conf/tine.yaml"},
		"a template":               {yaml: withToken + "servers: {a: {builtin: memory, template: ./tine.yaml}}\n", want: "servers.a.template: holds DIR/conf/tine.yaml"},
		"what the config includes": {yaml: "auth: {tokens: [{name: ada, token: \"${file:token}\"}]}\nworkspace: .\n", want: "of which each session would get a copy"},
		"without secrets":          {yaml: "workspace: .\n", warning: "of which each session gets a copy"},
		"a folder below":           {yaml: withToken + "workspace: ./data\nservers: {a: {builtin: memory}}\n"},
		"a folder beside":          {yaml: withToken + "workspace: ../elsewhere\nservers: {a: {builtin: memory}}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "conf/tine.yaml")
			if err := os.WriteFile(path, []byte(tt.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := Load(path, Options{})
			check(t, c, dir, err, tt.want, tt.warning)
		})
	}
}

// A sandbox can't write to what runs outside of one.
func TestProgramsOutsideAreNotWritten(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"app", "data"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"app/run.sh", "app/server.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct{ outside, write, want string }{
		"a program":            {"{command: DIR/app/run.sh}", "DIR/app", "holds DIR/app/run.sh, which servers.b runs outside of a sandbox,"},
		"a script":             {"{command: python3, args: [DIR/app/server.py]}", "DIR/app", "holds DIR/app/server.py, which servers.b runs outside of a sandbox,"},
		"a script in its cwd":  {"{command: python3, args: [server.py], cwd: DIR/app}", "DIR", "holds DIR/app/server.py,"},
		"a folder beside":      {"{command: DIR/app/run.sh}", "DIR/data", ""},
		"one in a sandbox too": {"{command: DIR/app/run.sh, sandbox: true}", "DIR/app", ""},
	} {
		t.Run(name, func(t *testing.T) {
			yaml := "servers:\n  a: {command: /bin/true, sandbox: {allow_write: [" + tt.write + "]}}\n  b: " + tt.outside + "\n"
			path := filepath.Join(t.TempDir(), "tine.yaml")
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(yaml, "DIR", dir)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path, Options{})
			if want := strings.ReplaceAll(tt.want, "DIR", dir); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
