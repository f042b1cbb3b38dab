package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func fuzzOptions() Options {
	return Options{
		Path: "tine.yaml", Home: "/home/ada",
		Getenv: func(k string) (string, bool) {
			if k == "A" {
				return "${B}", true
			}
			return "", false
		},
		ReadFile: func(string) ([]byte, error) { return nil, errors.New("nothing is read here") },
	}
}

// FuzzParse holds that nothing in a file makes Parse panic, that whatever it
// accepts is whole, and that what it shows can be read again as YAML.
func FuzzParse(f *testing.F) {
	seeds, _ := filepath.Glob("testdata/import/*.[jy]*")
	for _, s := range seeds {
		data, err := os.ReadFile(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(everyKey))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, fuzzOptions())
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || len(e.Problems) == 0 || len(e.Problems) > maxProblems {
				t.Fatalf("%T %v", err, err)
			}
		} else {
			whole(t, c)
			if _, err := readYAML(Marshal(c)); err != nil {
				t.Fatalf("what is shown can't be read: %v\n%s", err, Marshal(c))
			}
		}
		// Import loads its own result and says so when it can't.
		if _, _, err := Import(data, "x"); err != nil && strings.Contains(err.Error(), "does not load") {
			t.Fatal(err)
		}
	})
}

func whole(t *testing.T, c *Config) {
	seen := map[string]bool{}
	for i := range c.Servers {
		s := &c.Servers[i]
		if err := checkID(s.ID, c.Separator); err != nil || seen[s.ID] {
			t.Fatalf("id %q twice or wrong: %v", s.ID, err)
		}
		seen[s.ID] = true
		if s.Driver == "" || s.Scope == "" || s.Title == "" || s.Timeout <= 0 || s.ConnectTimeout <= 0 || s.Protocol == "" || s.ClientCapabilities == nil {
			t.Fatalf("default missing: %+v", s)
		}
		if s.Disabled == "" && s.Command == "" && s.URL == "" && s.Builtin == "" {
			t.Fatalf("nothing to run: %+v", s)
		}
		_ = s.Target()
	}
	if err := c.CheckExposure(); err != nil {
		t.Fatal(err)
	}
}

// FuzzPlaceholders holds that text without placeholders stays as it is, that
// escaping is undone by reading, and that nothing is resolved twice.
func FuzzPlaceholders(f *testing.F) {
	for _, s := range []string{
		"", "plain", "$", "$$", "$${A}", "${A}", "${A:-x}", "${env:A}", "${env:N:-{a}}", "${file:/x}", "${input:k}",
		"${A", "${}", "${A:-${B}}", "a${/}b", "$$${A}", "${workspaceFolder}/x", "${x%y}", "é${A}\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		opts := fuzzOptions()
		r := &newDecoder(opts).res
		out, _, gone, err := r.expand(s)
		if err == nil && !strings.Contains(s, "${") && out != s {
			t.Fatalf("%q became %q", s, out)
		}
		escaped := strings.ReplaceAll(s, "${", "$${")
		plain, secret, more, err2 := r.expand(escaped)
		if err2 != nil || plain != s || secret || len(more) > 0 {
			t.Fatalf("%q escaped is %q and came back as %q: %v", s, escaped, plain, err2)
		}
		if err == nil && len(gone) == 0 && s == "<${A}>" && out != "<${B}>" {
			t.Fatalf("resolved twice: %q", out)
		}
	})
}

// FuzzScalar holds that what is written is read as the same string.
func FuzzScalar(f *testing.F) {
	for _, s := range []string{"", "a", "-", "- a", "-i", "--rm", "a: b", "a #b", "#", "1", "1e5", "0x1", "true", "~", "null", "é\u0085\u2028x", "a\nb\n", " a ", "\t", "@x", "=", "<<", "a:b", "a:", "---", "...", "😀", "\ufeff", "12:30", "1_000", "C:\\x", "'", "\"", "{a}", "[a", "a,b", "&a", "*a", "!a", "%a", "|", ">", "?", "? a", "`", "\x7f", "\r", "2026-07-28", "-.inf", ".", ".5", "..", "y", "No"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) || len(s) > 10_000 {
			return
		}
		var b strings.Builder
		writeYAML(&b, mapNode(
			pair{key: "block", value: mapNode(pair{key: "k" + s, value: stringNode(s)})},
			pair{key: "flow", value: listNode(s, "x", s)},
		), 0)
		tr, err := readYAML([]byte(b.String()))
		if err != nil {
			t.Fatalf("%q: %v\n%s", s, err, b.String())
		}
		block, flow := tr.root.get("block"), tr.root.get("flow")
		if len(block.pairs) != 1 || block.pairs[0].key != "k"+s || block.pairs[0].value.text != s || block.pairs[0].value.kind != kindString {
			t.Fatalf("%q came back as %+v\n%s", s, block.pairs, b.String())
		}
		if len(flow.items) != 3 || flow.items[0].text != s || flow.items[2].text != s || flow.items[0].kind != kindString {
			t.Fatalf("%q came back as %+v\n%s", s, flow.items, b.String())
		}
	})
}

// FuzzID holds that any name becomes a valid id, the same each time.
func FuzzID(f *testing.F) {
	for _, s := range []string{"a", "a b", "@a/b", "a__b", "_", "tine", "a_-_b", "天気", "-_-_-"} {
		for _, sep := range []string{"__", "_", "-", ".", "-_", "_-_"} {
			f.Add(s, sep)
		}
	}
	f.Fuzz(func(t *testing.T, name, sep string) {
		if !separatorPattern.MatchString(sep) {
			return
		}
		id := sanitizeID(name, sep)
		if err := checkID(id, sep); err != nil {
			t.Fatal(err)
		}
		book := newIDBook([]string{id}, sep)
		if got := book.id(name + "!"); got == id || checkID(got, sep) != nil {
			t.Fatalf("%q became %q beside %q", name+"!", got, id)
		}
	})
}
