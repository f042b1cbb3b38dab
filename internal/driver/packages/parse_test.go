package packages

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	words := strings.Fields
	for _, tt := range []struct {
		line string
		want Wanted
	}{
		{"npx server", Wanted{Kind: NPM, Package: "server"}},
		{"npx -y @scope/server@1.2.3 /data --flag -y", Wanted{Kind: NPM, Package: "@scope/server@1.2.3", Args: words("/data --flag -y")}},
		{"npx --yes -- server@latest -- x", Wanted{Kind: NPM, Package: "server@latest", Args: words("-- x")}},
		{"npx -p a@1 -p b -- bin x", Wanted{Kind: NPM, Package: "a@1", Extra: words("b"), Bin: "bin", Args: words("x")}},
		{"npx --package=a bin", Wanted{Kind: NPM, Package: "a", Bin: "bin"}},
		{"npx --registry https://r.example server", Wanted{Kind: NPM, Package: "server", Settings: map[string]string{"npm_config_registry": "https://r.example"}}},
		{"/opt/node/bin/npx github:user/repo", Wanted{Kind: NPM, Package: "github:user/repo"}},
		{"npx user/repo", Wanted{Kind: NPM, Package: "user/repo"}},
		{"npx alias@npm:real@1", Wanted{Kind: NPM, Package: "alias@npm:real@1"}},
		{"npm exec server -y -- --flag", Wanted{Kind: NPM, Package: "server", Args: words("--flag")}},
		{"npm x -- server --flag", Wanted{Kind: NPM, Package: "server", Args: words("--flag")}},
		{"npx.cmd server", Wanted{Kind: NPM, Package: "server"}},
		{"uvx mcp-server-time --local-timezone UTC", Wanted{Kind: Python, Package: "mcp-server-time", Args: words("--local-timezone UTC")}},
		{"uvx mcp-server-time@2025.1", Wanted{Kind: Python, Package: "mcp-server-time==2025.1"}},
		{"uvx mcp-server-time@latest", Wanted{Kind: Python, Package: "mcp-server-time"}},
		{"uvx pkg[cli]==1.0", Wanted{Kind: Python, Package: "pkg[cli]==1.0"}},
		{"uvx --from pkg[a,b]>=1,<2 --with x,y[c,d]>=1,<3 -w z -p 3.12 bin go", Wanted{Kind: Python, Package: "pkg[a,b]>=1,<2", Extra: words("x y[c,d]>=1,<3 z"), Python: "3.12", Bin: "bin", Args: words("go")}},
		{"uvx --python=3.11 pkg", Wanted{Kind: Python, Package: "pkg", Python: "3.11"}},
		{"uvx --index-url https://i.example pkg", Wanted{Kind: Python, Package: "pkg", Settings: map[string]string{"UV_DEFAULT_INDEX": "https://i.example"}}},
		{"uv tool run -q pkg x", Wanted{Kind: Python, Package: "pkg", Args: words("x")}},
		{"pipx run pkg==1 x", Wanted{Kind: Python, Package: "pkg==1", Args: words("x")}},
		{"pipx run --spec pkg==1 bin x", Wanted{Kind: Python, Package: "pkg==1", Bin: "bin", Args: words("x")}},
	} {
		all := words(tt.line)
		got, ok, err := Parse(all[0], all[1:])
		if !ok || err != nil {
			t.Errorf("%s: %v, %v", tt.line, ok, err)
			continue
		}
		tt.want.Tool = all[0]
		if len(got.Args) == 0 {
			got.Args = nil
		}
		if len(got.Extra) == 0 {
			got.Extra = nil
		}
		if !reflect.DeepEqual(*got, tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.line, *got, tt.want)
		}
	}
}

func TestParseOtherCommands(t *testing.T) {
	for _, line := range []string{"node x.js", "npm start", "npm", "uv run x", "uv", "pipx install x", "python3 -m x", "bunx x", "pnpm dlx x", "docker run x"} {
		all := strings.Fields(line)
		if w, ok, err := Parse(all[0], all[1:]); ok || err != nil || w != nil {
			t.Errorf("%s: %v, %v, %v", line, w, ok, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ line, says string }{
		{"npx", "no package"},
		{"npx -y", "no package"},
		{"npx -c thing", "npx -c: a line of shell"},
		{"npx --call=thing", "npx --call: a line of shell"},
		{"npx --no-install server", "installed already"},
		{"npx --surprise server", "--surprise"},
		{"npx -p", "no value"},
		{"npx ./server", "local"},
		{"npx /srv/server", "local"},
		{"npx file:../server", "local"},
		{"npx -- -x", "not a package's name"},
		{"npx Ä", "not a package's name"},
		{"npx a@1 ; ", ""},
		{"npx -p a ../../bin/sh", "not a name"},
		{"uvx", "no package"},
		{"uvx --with-editable . pkg", "--with-editable"},
		{"uvx python", "interpreter"},
		{"uvx --from ./dir bin", "local"},
		{"uvx --from git+https://secret@example.org/x bin", "allow install scripts"},
		{"uvx --python --x pkg", "neither a version"},
		{"uvx a|b", "not a package's name"},
		{"pipx run --path x.py", "--path"},
	} {
		all := strings.Fields(tt.line)
		_, ok, err := Parse(all[0], all[1:])
		if !ok {
			t.Errorf("%s: not known", tt.line)
		}
		if tt.says == "" {
			continue // arguments are the program's business
		}
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.line, err, tt.says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the secret: %v", tt.line, err)
		}
	}
}

func TestKey(t *testing.T) {
	base := Wanted{Kind: NPM, Tool: "npx", Package: "a"}
	same := []func(*Wanted){
		func(w *Wanted) { w.Args = []string{"x"} },
		func(w *Wanted) { w.Bin = "x" },
		func(w *Wanted) { w.Env = map[string]string{"API_KEY": "x"} },
	}
	for i, change := range same {
		w := base
		change(&w)
		if w.key() != base.key() {
			t.Errorf("change %d makes another key", i)
		}
	}
	other := []func(*Wanted){
		func(w *Wanted) { w.Kind = Python },
		func(w *Wanted) { w.Package = "a@1" },
		func(w *Wanted) { w.Extra = []string{"b"} },
		func(w *Wanted) { w.Python = "3.12" },
		func(w *Wanted) { w.AllowScripts = true },
		func(w *Wanted) { w.Tool = "/opt/node/bin/npx" },
		func(w *Wanted) { w.Env = map[string]string{"npm_config_registry": "https://r.example"} },
	}
	keys := map[string]int{base.key(): -1}
	for i, change := range other {
		w := base
		change(&w)
		if was, ok := keys[w.key()]; ok {
			t.Errorf("changes %d and %d have the same key", i, was)
		}
		keys[w.key()] = i
	}
	registry := func(url string) string {
		w := base
		w.Settings = map[string]string{"npm_config_registry": url}
		return w.key()
	}
	if registry("https://u:one@r.example") != registry("https://u:two@r.example") {
		t.Error("a new password makes another key")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"-y\x1fpkg", "-p\x1fa\x1f--\x1fb", "--from\x1fa\x1fb", "tool\x1frun\x1fx", "exec\x1fa"} {
		f.Add("npx", s)
		f.Add("uvx", s)
		f.Add("uv", s)
		f.Add("npm", s)
	}
	f.Fuzz(func(t *testing.T, command, args string) {
		w, ok, err := Parse(command, strings.Split(args, "\x1f"))
		if !ok || err != nil {
			return
		}
		for _, spec := range w.specs() {
			if spec == "" || spec[0] == '-' || local(spec) {
				t.Errorf("%q is taken for a package", spec)
			}
		}
		if len(w.key()) != 20 {
			t.Errorf("the key is %q", w.key())
		}
	})
}
