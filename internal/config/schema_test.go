package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(JSONSchema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every config on the pages, which all load, is right by the schema too.
func TestSchemaTakesTheExamples(t *testing.T) {
	schema, n := resolvedSchema(t), 0
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/servers/*.md"} {
		pages, _ := filepath.Glob(pattern)
		for _, page := range pages {
			data, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(data), -1) {
				tree, err := readTree([]byte(b[1]), "x.yaml")
				if err != nil || detect(tree) != formatTine {
					continue
				}
				n++
				if err := schema.Validate(tree.root.Value()); err != nil {
					t.Errorf("%s: %v in\n%s", page, err, b[1])
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("%d examples", n)
	}
}

// A key with nothing behind it is taken, as Load takes it.
func TestSchemaTakesNothing(t *testing.T) {
	schema := resolvedSchema(t)
	for _, text := range []string{
		"servers: {a: {command: x, sandbox: }}", "servers: {a: {url: 'https://x', auth: , policy: }}", "servers: {a: {builtin: time, policy: {retry: }}}",
		"journal:", "workspace:", "auth: {tokens: }",
	} {
		tree, err := readTree([]byte(text), "x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(tree.root.Value()); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		mustParse(t, text, noEnv())
	}
}

// An editor marks the key that is wrong, not the map that it stands in.
func TestSchemaNamesTheKey(t *testing.T) {
	schema := resolvedSchema(t)
	for _, text := range []string{"servers: {a: {command: x, sandbox: {wrongkey: none}}}", "servers: {a: {docker: {image: x, wrongkey: 1}}}", "servers: {a: {command: x, policy: {retry: {wrongkey: 1}}}}",
		"journal: {wrongkey: 1}", "servers: {a: {command: x, sandbox: true, on_fork: {wrongkey: 1}}}"} {
		tree, err := readTree([]byte(text), "x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(tree.root.Value()); err == nil || !strings.Contains(err.Error(), "wrongkey") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	schema := resolvedSchema(t)
	for _, text := range []string{
		"lisen: 127.0.0.1:1",
		"limits: {calls: many}",
		"limits: {calls: 0}",
		"limits: {idle: 5 parsecs}",
		"limits: {body: 5 stones}",
		"servers: {a: {}}",
		"servers: {a: }",
		"servers: {a: {command: x, sandbox: 5}}",
		"servers: {a: {comand: x}}",
		"servers: {a b: {command: x}}",
		"servers: {a: {command: x, scope: mine}}",
		"servers: {a: {command: x, sandbox: {netwrok: none}}}",
		"servers: {a: {docker: {image: x, port: 70000}}}",
		"auth: {tokens: [{nam: x}]}",
		"sessions: {share: 90}",
	} {
		tree, err := readTree([]byte(text), "x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(tree.root.Value()); err == nil {
			t.Errorf("taken: %s", text)
		}
	}
}

// Every key says what it means, and none of it is Markdown in the schema.
func TestEveryKeyIsDescribed(t *testing.T) {
	var look func(path string, keys []About)
	look = func(path string, keys []About) {
		for _, k := range keys {
			if k.Meaning == "" || k.Type == "" {
				t.Errorf("%s has no meaning or no type", join(path, k.Name))
			}
			if s := plainText(k.Meaning); strings.ContainsAny(s, "`") || strings.Contains(s, "](") {
				t.Errorf("%s: %s", join(path, k.Name), s)
			}
			look(join(path, k.Name), k.Keys)
		}
	}
	look("", topTable.About())
	look("servers", serverTable.About())
}
