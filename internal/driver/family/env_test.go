package family

import (
	"slices"
	"testing"
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
			got := environmentOn(test.windows, test.gateway, test.own, test.cwd, "tok").List()
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
