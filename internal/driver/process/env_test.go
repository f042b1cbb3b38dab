package process

import (
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

func TestEnvironment(t *testing.T) {
	gateway := []string{
		"PATH=/bin", "HOME=/home/me", "LC_ALL=C", "XDG_CONFIG_HOME=/x", "SSL_CERT_FILE=/ca.pem",
		"MCP_TOKEN=secret", "AWS_SECRET_ACCESS_KEY=secret", "HTTPS_PROXY=http://me:secret@proxy", "npm_config_token=secret",
		"PATHS=secret", "=C:=secret", "odd",
	}
	for name, test := range map[string]struct {
		windows bool
		gateway []string
		own     map[string]string
		cwd     string
		want    []string
	}{
		"base": {
			gateway: gateway,
			want:    []string{"HOME=/home/me", "LC_ALL=C", "PATH=/bin", "SSL_CERT_FILE=/ca.pem", "TINE_INSTANCE=tok", "XDG_CONFIG_HOME=/x"},
		},
		"the server's own wins, also over nothing": {
			gateway: gateway[:2],
			own:     map[string]string{"PATH": "/opt/bin", "HTTPS_PROXY": "http://given", "EMPTY": ""},
			want:    []string{"EMPTY=", "HOME=/home/me", "HTTPS_PROXY=http://given", "PATH=/opt/bin", "TINE_INSTANCE=tok"},
		},
		"a folder": {
			cwd:  "/work",
			want: []string{"PWD=/work", "TINE_INSTANCE=tok"},
		},
		"a gateway inside an instance": {
			gateway: []string{"TINE_INSTANCE=outer"},
			want:    []string{"TINE_INSTANCE=outer:tok"},
		},
		"the marker can't be given": {
			own:  map[string]string{"TINE_INSTANCE": "mine"},
			want: []string{"TINE_INSTANCE=tok"},
		},
		"windows": {
			windows: true,
			gateway: []string{"Path=C:\\bin", "SystemRoot=C:\\Windows", "AppData=C:\\data", "Secret=secret"},
			own:     map[string]string{"PATH": "D:\\bin"},
			want:    []string{"AppData=C:\\data", "PATH=D:\\bin", "SystemRoot=C:\\Windows", "TINE_INSTANCE=tok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := makeEnv(test.windows, test.gateway, test.own, test.cwd, "tok").list()
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestChildSeesItsEnvironment(t *testing.T) {
	spec := suite.Spec(t, suite.Program(t), "one", "two words")
	spec.Cwd = realPath(t.TempDir())
	spec.Env = map[string]string{"GIVEN": "yes"}
	d := New(Options{Environ: []string{"PATH=/bin", "GATEWAY_SECRET=hidden"}})
	p := drivertest.Dial(t, suite.StartSpec(t, d, spec))
	env := strings.Split(p.Call(t, "env", nil), "\n")
	if !slices.Contains(env, "GIVEN=yes") || !slices.Contains(env, "PATH=/bin") || strings.Contains(strings.Join(env, " "), "hidden") {
		t.Errorf("environment %q", env)
	}
	if got := p.Call(t, "cwd", nil); got != spec.Cwd {
		t.Errorf("it runs in %q, want %q", got, spec.Cwd)
	}
	if got := p.Call(t, "args", nil); got != "one\ntwo words" {
		t.Errorf("arguments %q", got)
	}
}
