//go:build unix

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// guarded makes a home with a project and a gateway's folder in it, and reads a config
// there. DIR in the text is the home.
func guarded(t *testing.T, yaml string, before func(home string)) (*Config, string, error) {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".config/app/settings", "proj/.env", "proj/main.py", "proj/data/x", "plain/x", "gate/ca.pem", "gate/token", "gate/data/x", "gate/state/tine.db", "work.pem"} {
		put(t, filepath.Join(home, name), "token-0123456789abcdef")
	}
	if before != nil {
		before(home)
	}
	path := filepath.Join(home, "gate/tine.yaml")
	put(t, path, strings.ReplaceAll(yaml, "DIR", home))
	c, err := Load(path, Options{Home: home, State: filepath.Join(home, "gate/state"), Getenv: func(string) (string, bool) { return "", false }})
	return c, home, err
}

func put(t *testing.T, at, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const withToken = "auth: {tokens: [{name: ada, token: ada-token-0123456789abcdef}]}\n"

func check(t *testing.T, c *Config, home string, err error, want, warning string) {
	t.Helper()
	want = strings.ReplaceAll(want, "DIR", home)
	switch {
	case want == "" && err != nil:
		t.Fatal(err)
	case want != "":
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		return
	}
	warning = strings.ReplaceAll(warning, "DIR", home)
	if got := fmt.Sprint(c.Warnings); warning != "" && !strings.Contains(got, warning) || warning == "" && len(c.Warnings) > 0 {
		t.Errorf("warnings %s, want %q", got, warning)
	}
}

// No session begins with a copy of a user's keys.
func TestKeysAreNotCopiedIntoSessions(t *testing.T) {
	link := func(from, to string) func(string) {
		return func(home string) { _ = os.Symlink(filepath.Join(home, from), filepath.Join(home, to)) }
	}
	write := func(names ...string) func(string) {
		return func(home string) {
			for _, name := range names {
				put(t, filepath.Join(home, name), "x")
			}
		}
	}
	for name, tt := range map[string]struct {
		yaml, want string
		before     func(home string)
	}{
		"a workspace":               {yaml: "workspace: ~/.ssh\n", want: "tine.yaml:1:12: workspace: is DIR/.ssh, a place of keys, of which each session would get a copy; name a folder with nothing of it"},
		"what is in one":            {yaml: "servers: {a: {builtin: memory, template: ~/.ssh/id_ed25519}}\n", want: "servers.a.template: lies in DIR/.ssh, a place of keys"},
		"one that is deeper":        {yaml: "workspace: ~/.config/gh\n", want: "is DIR/.config/gh, a place of keys"},
		"a folder with one":         {yaml: "workspace: ~/.config\n", want: "holds DIR/.config/gh, a place of keys"},
		"a home":                    {yaml: "workspace: {template: \"~\"}\n", want: "workspace.template: holds DIR/.ssh, a place of keys"},
		"a state":                   {yaml: "servers: {a: {command: x, state: {d: ~/.aws}}}\n", want: "servers.a.state.d: is DIR/.aws, a place of keys"},
		"a file":                    {yaml: "servers: {a: {builtin: memory, template: ~/work.pem}}\n", want: "servers.a.template: lies in DIR/*.pem, a place of keys"},
		"a container":               {yaml: "servers: {a: {docker: {image: i, state: [/d]}, template: ~/.ssh}}\n", want: "servers.a.template: is DIR/.ssh"},
		"what sessions may name":    {yaml: "template_roots: [~/.aws]\n", want: "template_roots[0]: is DIR/.aws, a place of keys"},
		"a link to one":             {yaml: "workspace: ~/plain/keys\n", before: link(".ssh", "plain/keys"), want: "is DIR/.ssh, a place of keys"},
		"where a place is linked":   {yaml: "workspace: ~/plain\n", before: link("plain", ".kube"), want: "lies in DIR/.kube, a place of keys"},
		"what is linked from it":    {yaml: "workspace: ~/plain\n", before: link("plain/x", ".netrc"), want: "holds DIR/.netrc, a place of keys"},
		"one of another":            {yaml: "workspace: /home/nobody-here/.ssh\n", want: "is /home/nobody-here/.ssh, a place of keys"},
		"one of the system":         {yaml: "workspace: /etc/ssh/ssh_host_rsa_key\n", want: "lies in /etc/ssh/*key*, a place of keys"},
		"a folder with a part":      {yaml: "workspace: ~/.docker\n", before: write(".docker/contexts/x", ".docker/cli-plugins/x"), want: "holds DIR/.docker/contexts, a place of keys"},
		"and that part":             {yaml: "workspace: ~/.docker/cli-plugins\n", before: write(".docker/contexts/x", ".docker/cli-plugins/x")},
		"what is linked in it":      {yaml: "workspace: ~/plain\n", before: func(home string) { write(".docker/x")(home); link("plain", ".docker/contexts")(home) }, want: "lies in DIR/.docker/contexts, a place of keys"},
		"a certificate":             {yaml: "servers: {a: {builtin: memory, template: ~/cacert.pem}}\n", before: write("cacert.pem")},
		"a folder beside":           {yaml: "workspace: ~/.config/app\n"},
		"a project with its keys":   {yaml: "workspace: ~/proj\n"},
		"a folder without any":      {yaml: "workspace: ~/plain\n"},
		"one that is not there yet": {yaml: "workspace: ~/.config/later\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, home, err := guarded(t, tt.yaml, tt.before)
			if err == nil {
				c.Warnings = nil // there are no servers
			}
			check(t, c, home, err, tt.want, "")
		})
	}
}

// A server that is given the gateway's own folder could read its tokens, or choose what
// it runs.
func TestTheGatewaysFilesAreNotOpened(t *testing.T) {
	files := func(settings string) string { return "servers: {a: {builtin: files, settings: {" + settings + "}}}\n" }
	docker := func(more string) string { return "servers: {a: {docker: {image: i, " + more + "}}}\n" }
	for name, tt := range map[string]struct{ yaml, want, warning string }{
		"files in its folder":               {yaml: files("root: ./"), want: "tine.yaml:1:48: servers.a.settings.root: holds DIR/gate/tine.yaml, the gateway's config, which a caller of the server could change, and with it what the gateway runs; name a folder that does not hold it, or move the file elsewhere"},
		"files above it":                    {yaml: files("root: ~/"), want: "holds DIR/gate/tine.yaml, the gateway's config"},
		"files in its folder, to read":      {yaml: withToken + files("root: ./, readonly: true"), want: "which a caller of the server could read"},
		"files in its state":                {yaml: files("root: ./state"), want: "servers.a.settings.root: holds DIR/gate/state, the gateway's state folder"},
		"files below its state":             {yaml: files("root: ./state/instances"), want: "servers.a.settings.root: lies in DIR/gate/state, the gateway's state folder"},
		"files below":                       {yaml: files("root: ./data")},
		"files elsewhere":                   {yaml: files("root: ~/proj")},
		"a bind of its folder":              {yaml: docker("binds: [\".:/gate\"]"), want: "servers.a.docker.binds[0]: holds DIR/gate/tine.yaml, the gateway's config, which a caller of the server could change"},
		"a bind of the config":              {yaml: withToken + docker("binds: [{source: ./tine.yaml, target: /t, read_only: true}]"), want: "servers.a.docker.binds[0]: holds DIR/gate/tine.yaml, the gateway's config, which a caller of the server could read"},
		"a bind above it":                   {yaml: docker("binds: [\"~/:/h:ro\"]"), want: "servers.a.docker.binds[0]: holds DIR/gate/state, the gateway's state folder"},
		"a volume of docker run":            {yaml: docker("run_args: \"-v DIR/gate/state:/s\""), want: "servers.a.docker.run_args: holds DIR/gate/state, the gateway's state folder"},
		"a bind of what the config trusts":  {yaml: docker("binds: [\"./ca.pem:/c\"]") + "telemetry: {otlp: {endpoint: \"https://x.example.org\", ca_file: ca.pem}}\n", want: "the ca_file of telemetry.otlp, which a caller"},
		"and to read it":                    {yaml: docker("binds: [\"./ca.pem:/c:ro\"]") + "telemetry: {otlp: {endpoint: \"https://x.example.org\", ca_file: ca.pem}}\n"},
		"a bind of what the config reads":   {yaml: docker("binds: [\"./token:/t:ro\"]") + "auth: {tokens: [{name: ada, token: \"${file:token}\"}]}\n", want: "DIR/gate/token, which the config reads, which a caller of the server could read"},
		"a bind below":                      {yaml: docker("binds: [\"./data:/d\", \"~/proj:/p\"]")},
		"a volume":                          {yaml: docker("binds: [\"gate:/d\"]")},
		"an engine elsewhere":               {yaml: docker("host: \"tcp://engine.example.org:2376\", binds: [\"DIR/gate:/d\"]")},
		"an engine here over tcp":           {yaml: docker("host: \"tcp://127.0.0.1:2375\", binds: [\"DIR/gate:/d\"]"), want: "the gateway's config"},
		"a template of the state":           {yaml: "workspace: ./state\nservers: {a: {builtin: files}}\n", want: "workspace: holds DIR/gate/state, the gateway's state folder, with its tokens and the data of all sessions; name another folder, or keep the state elsewhere with --state"},
		"templates that sessions may name":  {yaml: "template_roots: [.]\nservers: {a: {builtin: files}}\n", want: "template_roots[0]: holds DIR/gate/state, the gateway's state folder"},
		"the config that sessions may name": {yaml: withToken + "template_roots: [.]\nservers: {a: {builtin: files}}\n", want: "template_roots[0]: holds DIR/gate/tine.yaml, the gateway's config, of which each session would get a copy"},
	} {
		t.Run(name, func(t *testing.T) {
			c, home, err := guarded(t, tt.yaml, nil)
			check(t, c, home, err, tt.want, tt.warning)
		})
	}
	t.Run("a config without tokens, to read", func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "tine.yaml"), files("root: ./, readonly: true"))
		t.Chdir(dir)
		c, err := Load("tine.yaml", Options{Home: "/nonexistent"})
		check(t, c, dir, err, "", "tine.yaml, the gateway's config, which a caller of the server can read; keep secrets out of it")
	})
}

// A project that a sandbox is given is shown with its keys, and the config says so.
func TestKeysOfProjectsAreToldOf(t *testing.T) {
	box := func(sandbox string) string { return "servers: {a: {command: x, sandbox: {" + sandbox + "}}}\n" }
	for name, tt := range map[string]struct{ yaml, want, warning string }{
		"to write":               {yaml: box("allow_write: [~/proj]"), warning: "tine.yaml:1:51: servers.a.sandbox.allow_write[0]: the server sees DIR/proj/.env, which may hold keys; move it elsewhere, name only the folders beside it, or name it in allow_read to say that it is meant"},
		"to read":                {yaml: box("allow_read: [~/proj]"), warning: "allow_read[0]: the server sees DIR/proj/.env, which may hold keys; hide it with deny_read, or name it in allow_read to say that it is meant"},
		"that are meant":         {yaml: box("allow_write: [~/proj], allow_read: [~/proj/.env]")},
		"that are denied":        {yaml: box("allow_read: [~/proj], deny_read: [~/proj/.env]")},
		"that are hidden":        {yaml: box("allow_read: [\"~\"]")},
		"of a folder below":      {yaml: box("allow_write: [~/proj/data]")},
		"of a home":              {yaml: box("allow_write: [~/.config]"), want: "allow_write[0]: has ~/.config/gh in it, which no sandbox sees"},
		"of a home, by name":     {yaml: box("allow_read: [~/.edgerc]"), want: "allow_read[0]: no sandbox sees ~/.edgerc, as it holds keys"},
		"of a home, by a name":   {yaml: box("allow_read: [~/work.pem]"), want: "allow_read[0]: no sandbox sees ~/*.pem, as it holds keys"},
		"of a home, in a folder": {yaml: box("allow_write: [~/.ansible]"), want: "allow_write[0]: has ~/.ansible/vault_pass in it"},
	} {
		t.Run(name, func(t *testing.T) {
			c, home, err := guarded(t, tt.yaml, nil)
			check(t, c, home, err, tt.want, tt.warning)
		})
	}
	// It is closed in every sandbox, by whatever path it is named.
	t.Run("of the state folder", func(t *testing.T) {
		home, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(home, "work/state/snapshot.key"), "x")
		if err := os.Symlink("work", filepath.Join(home, "linked")); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(home, "gate/tine.yaml")
		put(t, path, box("allow_read: [~/work, ~/linked]"))
		for _, state := range []string{"work/state", "linked/state"} {
			c, err := Load(path, Options{Home: home, State: filepath.Join(home, state)})
			check(t, c, home, err, "", "")
		}
		c, err := Load(path, Options{Home: home, State: filepath.Join(home, "elsewhere")})
		check(t, c, home, err, "", "the server sees DIR/work/state/snapshot.key")
	})
}
