package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestImport(t *testing.T) {
	files, err := filepath.Glob("testdata/import/*.[jy]*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			yaml, warnings, err := Import(data, filepath.Base(file))
			if err != nil {
				t.Fatal(err)
			}
			got := "# warnings:\n"
			for _, w := range warnings {
				got += "#   " + w + "\n"
			}
			got += "\n" + string(yaml)
			golden := strings.TrimSuffix(file, filepath.Ext(file)) + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if strings.Contains(strings.Join(warnings, "\n"), "hunter2") {
				t.Error("a warning shows a secret")
			}
			sameServers(t, data, file, yaml)
		})
	}
}

// sameServers holds that what was imported means what the source means.
func sameServers(t *testing.T, source []byte, path string, imported []byte) {
	t.Helper()
	vars := map[string]string{"API_KEY": "k", "CLAUDE_PLUGIN_ROOT": "/p", "HOME": "/h", "PERPLEXITY_KEY": "x"}
	opts := env(vars)
	opts.Path = filepath.Join("/srv", "tine.yaml")
	got := mustParse(t, string(imported), opts)
	opts.Path = filepath.Join("/srv", filepath.Base(path))
	want, err := Parse(source, opts)
	if err != nil {
		t.Fatal(err)
	}
	if ch := Diff(want, got); len(ch.Rest) > 0 {
		t.Errorf("imported with other %v", ch.Rest)
	}
	for _, s := range want.Servers {
		if s.Disabled != "" && !strings.Contains(s.Disabled, "env_file") {
			continue
		}
		g := serverOf(t, got, s.ID)
		if !g.same(&s) {
			t.Errorf("%s: imported\n%+v\nfrom\n%+v", s.ID, g, s)
		}
	}
}

func TestImportRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"servers: {a: {builtin: time}}\n": "x.yaml: this is a tine.yaml already; use it as it is",
		"foo: bar\n":                      "x.yaml: no servers found; want mcpServers, servers or backends",
		"a: [\n":                          "x.yaml:1:4: not valid YAML: sequence end token ']' not found",
		`{"mcpServers": {}`:               "x.yaml:1:1: not valid YAML: could not find flow mapping end token '}'",
		"":                                "x.yaml: no servers found; want mcpServers, servers or backends",
	} {
		_, _, err := Import([]byte(in), "x.yaml")
		if err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
}

func TestImportCannotEscapeComments(t *testing.T) {
	in := `{"mcpServers": {"a": {"command": "x", "k\nlisten: 0.0.0.0:1\n\u2028listen: x": 1}, "b\nlisten: 0.0.0.0:1": {"type": "x\r\nlisten: y"}}}`
	yaml, _, err := Import([]byte(in), "evil\nlisten: 0.0.0.0:1.json")
	if err != nil {
		t.Fatal(err)
	}
	c := mustParse(t, string(yaml), noEnv())
	if c.Listen != DefaultListen || len(c.Servers) != 1 {
		t.Errorf("%s", yaml)
	}
}
