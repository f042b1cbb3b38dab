package config

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

func testResolver() *resolver {
	vars := map[string]string{"A": "alpha", "EMPTY": "", "NESTED": "${A}", "ProgramFiles(x86)": "C:\\x"}
	files := map[string]string{
		filepath.Join("/etc/tine", "key"):   "secret\n\n",
		filepath.Join("/home/ada", "key"):   "home ${A}\r\n",
		filepath.Join("/etc/tine", "big"):   strings.Repeat("x", MaxIncluded+1),
		filepath.Join("/etc/tine", "bytes"): "\xff",
	}
	return &resolver{
		getenv: func(k string) (string, bool) { v, ok := vars[k]; return v, ok },
		readFile: func(p string) ([]byte, error) {
			if p == filepath.Join("/etc/tine", "denied") {
				return nil, errors.New("permission denied")
			}
			v, ok := files[p]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(v), nil
		},
		paths:     paths{dir: "/etc/tine", home: "/home/ada"},
		workspace: "/etc/tine",
	}
}

func TestExpand(t *testing.T) {
	r := testResolver()
	tests := []struct {
		in, want string
		secret   bool
		gone     string // what is missing
		err      string
	}{
		{in: "plain", want: "plain"},
		{in: "a $ b $A $(x) $$", want: "a $ b $A $(x) $$"},
		{in: "${A}", want: "alpha", secret: true},
		{in: "<${A}|${env:A}>", want: "<alpha|alpha>", secret: true},
		{in: "${EMPTY}", want: "", secret: true},
		{in: "${EMPTY:-x}", want: "x", secret: true},
		{in: "${NOPE:-x}", want: "x", secret: true},
		{in: "${NOPE:-}", want: "", secret: true},
		{in: "${A:-x}", want: "alpha", secret: true},
		{in: "${env:NOPE:-a:-b c}", want: "a:-b c", secret: true},
		{in: "${NOPE:-{}}", want: "{}", secret: true},
		{in: `${NOPE:-{"a": {"b": 1}}}!`, want: `{"a": {"b": 1}}!`, secret: true},
		{in: "${env:ProgramFiles(x86)}", want: "C:\\x", secret: true},
		{in: "${env:-x}", want: "x", secret: true}, // a variable called env
		{in: "$${A}", want: "${A}"},
		{in: "$${A} ${A}", want: "${A} alpha", secret: true},
		{in: "$$${A}", want: "$${A}"},
		{in: "$${", want: "${"},
		{in: "${NESTED}", want: "${A}", secret: true}, // once and never again
		{in: "${file:key}", want: "secret", secret: true},
		{in: "${file:~/key}", want: "home ${A}", secret: true},
		{in: "${workspaceFolder}/x${/}y ${userHome} ${workspaceFolderBasename}", want: "/etc/tine/x" + string(filepath.Separator) + "y /home/ada tine"},

		{in: "${NOPE}", secret: true, gone: "variable NOPE is not set"},
		{in: "${input:key}", gone: "it asks for input key (${input:key}), which only an editor can ask for"},
		{in: "${file:none}", secret: true, gone: "file /etc/tine/none does not exist"},
		{in: "${file:denied}", secret: true, gone: "file /etc/tine/denied can't be read: permission denied"},
		{in: "${file:big}", secret: true, gone: "file /etc/tine/big is larger than 1 MiB"},
		{in: "${file:bytes}", secret: true, gone: "file /etc/tine/bytes is not UTF-8 text"},

		{in: "${A", err: `"${A" has no closing brace`},
		{in: "${", err: `"${" has no closing brace`},
		{in: "${}", err: "${} names nothing"},
		{in: "${env:}", err: "${env:} names nothing"},
		{in: "${file:}", err: "${file:} names nothing"},
		{in: "${:-x}", err: "${:-x} names nothing"},
		{in: "${A:-${B}}", err: "${A:-${B}}: a default can't hold another placeholder"},
		{in: "${a b}", err: `"a b" is not a variable's name`},
		{in: "${#a}", err: `"#a" is not a variable's name`},
		{in: "${secrets:x}", err: `"secrets" is not a kind of placeholder`},
		{in: "${A:x}", err: `"A" is not a kind of placeholder`},
		{in: "${env:a{b}}", err: `"a{b}" can't be a name`},
	}
	for _, tt := range tests {
		out, secret, gone, err := r.expand(tt.in)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: got error %v, want %s", tt.in, err, tt.err)
			}
		case err != nil:
			t.Errorf("%q: %v", tt.in, err)
		case tt.gone != "":
			if len(gone) != 1 || filepath.ToSlash(gone[0].what) != tt.gone {
				t.Errorf("%q: missing %+v, want %s", tt.in, gone, tt.gone)
			}
		case out != tt.want || len(gone) > 0:
			t.Errorf("%q: got %q, missing %v, want %q", tt.in, out, gone, tt.want)
		}
		if err == nil && secret != tt.secret {
			t.Errorf("%q: secret %v, want %v", tt.in, secret, tt.secret)
		}
	}
}

func TestAliasesAreResolvedOnce(t *testing.T) {
	c := mustParse(t, `x-env: &e {K: "${TRICK}"}
servers:
  a: {command: x, env: *e}
  b: {command: x, env: *e}
`, env(map[string]string{"TRICK": "${SECRET}", "SECRET": "leak"}))
	for _, id := range []string{"a", "b"} {
		if got := serverOf(t, c, id).Env["K"]; got != "${SECRET}" {
			t.Errorf("%s: %q", id, got)
		}
	}
}

func TestKeysHoldNoPlaceholders(t *testing.T) {
	c := mustParse(t, `servers: {a: {command: x, env: {"${A}": b}}}`, env(map[string]string{"A": "x"}))
	if got := serverOf(t, c, "a").Env; got["${A}"] != "b" {
		t.Errorf("%q", got)
	}
}

// Messages that name the server have the reason alone.
func TestOffReason(t *testing.T) {
	c := mustParse(t, "servers: {a: {command: '${NOPE}'}, b: {command: x}}", noEnv())
	if got, want := c.Servers[0].OffReason(), "variable NOPE is not set (command); set it, or write ${NOPE:-default}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := c.Servers[1].OffReason(); got != "" {
		t.Errorf("b is off: %q", got)
	}
}
