package blueprint

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func mustParse(t testing.TB, doc string) Blueprint {
	t.Helper()
	b, err := Parse("a", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestViolations(t *testing.T) {
	schema := `{"type":"object","required":["q","n"],"additionalProperties":false,"$defs":{"word":{"type":"string","pattern":"^[a-z]+$"}},
		"properties":{"q":{"type":"string","minLength":3},"n":{"type":"integer","minimum":1,"maximum":9},"kind":{"enum":["a","b"]},
		"words":{"type":"array","maxItems":3,"items":{"$ref":"#/$defs/word"}},"a/b":{"type":"boolean"},"either":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`
	b := mustParse(t, `{"parameters":`+schema+`}`)
	for params, want := range map[string][]Violation{
		`{"q":"abc","n":5}`:                 nil,
		`{"q":"abc","n":5.0,"either":null}`: nil,
		`{}`:                                {{"/q", "is missing", "/required"}, {"/n", "is missing", "/required"}},
		`{"q":"a","n":"5"}`: {
			{"/n", "want integer, got string", "/properties/n/type"}, {"/q", "has 1 character, and at least 3 are wanted", "/properties/q/minLength"},
		},
		`{"q":"abc","n":0,"knd":"a"}`:              {{"/knd", `is not known; did you mean "kind"?`, "/additionalProperties"}, {"/n", "is less than 1", "/properties/n/minimum"}},
		`{"q":"abc","n":5,"kind":"c"}`:             {{"/kind", "want a or b", "/properties/kind/enum"}},
		`{"q":"abc","n":5,"words":["ab","A","b"]}`: {{"/words/1", "does not match ^[a-z]+$", "/$defs/word/pattern"}},
		`{"q":"abc","n":5,"a/b":1}`:                {{"/a~1b", "want boolean, got integer", "/properties/a~1b/type"}},
	} {
		var given map[string]any
		if err := json.Unmarshal([]byte(params), &given); err != nil {
			t.Fatal(err)
		}
		_, err := Resolve(b, Input{Parameters: given})
		var invalid *InvalidError
		switch {
		case want == nil:
			if err != nil {
				t.Errorf("%s: %v", params, err)
			}
		case !errors.As(err, &invalid) || invalid.Code != CodeParameters || !reflect.DeepEqual(invalid.Violations, want):
			t.Errorf("%s:\n got %+v\nwant %+v", params, invalid, want)
		}
	}
	// What only the library sees has its reason.
	_, err := Resolve(b, Input{Parameters: map[string]any{"q": "abc", "n": 5, "either": 5}})
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Violations) != 1 || !strings.Contains(invalid.Violations[0].Message, "anyOf") {
		t.Errorf("%+v", invalid)
	}
}

func TestParameters(t *testing.T) {
	b := mustParse(t, `{"system_prompt":"${params.n} ${params.o} ${params.prompt}","parameters":{"properties":{"n":{"type":"integer"},"o":{"default":{"a":[1,"<"]}}}}}`)
	given := map[string]any{"n": json.Number("9007199254740993"), "prompt": "x"}
	r, err := Resolve(b, Input{Parameters: given})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := r.Fill(nil); err != nil || f.SystemPrompt != `9007199254740993 {"a":[1,"<"]} x` {
		t.Errorf("%q, %v", f.SystemPrompt, err)
	}
	if len(given) != 2 {
		t.Errorf("the given parameters have changed: %v", given)
	}
	plain := mustParse(t, `{}`)
	for _, params := range []map[string]any{nil, {}, {"prompt": ""}, {"prompt": 5}, {"prompt": "a", "x": 1}} {
		if _, err := Resolve(plain, Input{Parameters: params}); err == nil {
			t.Errorf("%v fit an agent with a prompt alone", params)
		}
	}
	strict := mustParse(t, `{"system_prompt":"${params.repo}","parameters":{"required":["repo"],"additionalProperties":false,"properties":{"repo":{"type":"string"}}}}`)
	in := Input{Parameters: map[string]any{"prompt": "<agent-callback>", "repo": "a"}}
	if _, err := Resolve(strict, in); err == nil {
		t.Error("a parameter that the schema forbids is taken")
	}
	in.Unchecked = true
	if r, err := Resolve(strict, in); err != nil || r.Parameters["prompt"] != "<agent-callback>" {
		t.Errorf("%v, %v", r.Parameters, err)
	}
	if r, err := Resolve(plain, Input{Parameters: map[string]any{"prompt": "a"}}); err != nil || r.Parameters["prompt"] != "a" {
		t.Errorf("%v, %v", r.Parameters, err)
	}
}

// A schema costs a bounded time, whatever refers to what.
func TestSchemaBounds(t *testing.T) {
	bomb := `{"$defs":{"x0":{"type":"string"}`
	for i := range 30 {
		bomb += `,"x` + strconv.Itoa(i+1) + `":{"allOf":[{"$ref":"#/$defs/x` + strconv.Itoa(i) + `"},{"$ref":"#/$defs/x` + strconv.Itoa(i) + `"}]}`
	}
	for schema, want := range map[string]string{
		bomb + `},"$ref":"#/$defs/x30"}`:                                    "too large",
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`:     "circle",
		`{"properties":{"default":{"$ref":"#"}}}`:                           "circle",
		`{"$ref":"#/nowhere"}`:                                              "names nothing",
		`{"$dynamicRef":"#a"}`:                                              "not supported",
		`{"pattern":"("}`:                                                   "not a JSON Schema",
		`{"properties":{"type":{"type":"string"},"enum":{"type":"array"}}}`: "",
		`{"properties":{"a":{"default":5,"type":"string"}}}`:                "not a JSON Schema",
		`{"items":{"type":["string","nul"]}}`:                               `did you mean "null"?`,
	} {
		_, err := compile(json.RawMessage(schema))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", schema, err, want)
		}
	}
}

// What is missing is named with its place, and servers have a code of their own.
func TestMissing(t *testing.T) {
	for doc, want := range map[string][2]string{
		`{"system_prompt":"${scope.x}"}`:                                       {CodePlaceholder, `agent a:1:18: system_prompt: ${scope.x}: the run has no scope value "x"`},
		`{"env":{"A":"${env.HOME}"}}`:                                          {CodePlaceholder, `env.A: ${env.HOME}: there is no variable "HOME" for blueprints`},
		`{"executor_config":{"a":[{"b":"${scope.y}"}]}}`:                       {CodePlaceholder, "executor_config.a[0].b: ${scope.y}"},
		`{"mcp_servers":{"s":{"url":"http://a/","headers":{"K":"${env.K}"}}}}`: {CodeServerConfig, `agent a:1:55: mcp_servers.s.headers.K: ${env.K}: there is no variable "K"`},
		`{"hooks":{"on_run_finish":{"command":"x","args":["${scope.z}"]}}}`:    {CodePlaceholder, "hooks.on_run_finish[0].args[0]: ${scope.z}"},
	} {
		_, err := Resolve(mustParse(t, doc), Input{Parameters: map[string]any{"prompt": "x"}})
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Code != want[0] || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
}

// A value can't make the start of a server fill anything in, alone or with what stands
// around it.
func TestNoValueIsFilledInAtStart(t *testing.T) {
	b := mustParse(t, `{"mcp_servers":{"s":{"command":"c","args":["$${params.prompt}","x$","${workspace}"],"env":{"A":"$${scope.a}","B":"${runner.id}${scope.b}"}}},"scope":{"a":"","b":""}}`)
	bad := []Input{
		{Parameters: map[string]any{"prompt": "${workspace}"}},
		{Parameters: map[string]any{"prompt": "x"}, Scope: map[string]string{"b": "${state.x}"}},
		{Parameters: map[string]any{"prompt": "x"}, Scope: map[string]string{"b": "y${workspace}"}},
	}
	b2 := mustParse(t, `{"mcp_servers":{"s":{"command":"c","args":["$${params.prompt}","a$ ${params.prompt}"]}}}`)
	for _, in := range bad[1:] {
		if _, err := Resolve(b, in); err == nil || !strings.Contains(err.Error(), "would fill in") {
			t.Errorf("%+v: %v", in, err)
		}
	}
	if _, err := Resolve(b2, bad[0]); err == nil {
		t.Error("a parameter may be ${workspace} in an argument")
	}
	// What a runner's value and a caller's text make together is seen at the last stage.
	r, err := Resolve(b, Input{Parameters: map[string]any{"prompt": "x"}, Scope: map[string]string{"b": "{workspace}"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Fill(map[string]string{"id": "$"}); err == nil || !strings.Contains(err.Error(), "would fill in") {
		t.Errorf("%v", err)
	}
}

// FuzzCaller shows that nothing which a caller controls is ever filled in: it stands as
// text in what comes out, and no variable is read but those that were given.
func FuzzCaller(f *testing.F) {
	for _, s := range []string{"hi", "${env.SECRET}", "$${env.SECRET}", "${runner.id}", "${params.other}", "{env.SECRET}", "${", "$", `"},"${env.SECRET}`, `{"runner":"id"}`, "${scope.s}", "env.SECRET}", "\\u0024{env.SECRET}"} {
		f.Add(s, "x"+s, s+"y")
	}
	const canary = "canary-of-the-environment"
	f.Setenv("SECRET", canary)
	f.Setenv("HOME_CANARY", canary)
	doc := `{"system_prompt":"A ${params.prompt} B ${params.other} C ${scope.s} D ${runner.id} E ${env.GIVEN} F $${params.prompt} G $${params.other}",
		"parameters":{"properties":{"prompt":{},"other":{}}},
		"env":{"P":"${params.prompt}","S":"$${scope.s}","R":"${runner.id}${params.other}"},
		"executor_config":{"p":"${params.prompt}","q":["x${params.other}",{"s":"${scope.s}"}]},
		"mcp_servers":{"u":{"url":"http://127.0.0.1/","headers":{"X":"${params.prompt}${scope.s}"}},"orchestrator":{"headers":{"X-Agent-Tags":"${scope.s}"}}},
		"hooks":{"on_run_finish":{"command":"c","args":["${params.prompt}","${scope.s}"]}}}`
	b := mustParse(f, doc)
	f.Fuzz(func(t *testing.T, prompt, other, scope string) {
		in := Input{
			Parameters: map[string]any{"prompt": prompt, "other": other}, Scope: map[string]string{"s": scope},
			Env: map[string]string{"GIVEN": "given-value"}, Runtime: Runtime{"run_1", "ses_1"},
		}
		r, err := Resolve(b, in)
		if err != nil {
			return // too long, or no text that a program could be given
		}
		stored, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var again Resolved
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatal(err)
		}
		out, err := again.Fill(map[string]string{"id": "RUNNER"})
		if err != nil {
			return
		}
		// JSON has no text that is not UTF-8, and a store is JSON.
		p, o, s := valid(prompt), valid(other), valid(scope)
		want := Filled{
			SystemPrompt: "A " + p + " B " + o + " C " + s + " D RUNNER E given-value F ${params.prompt} G ${params.other}",
			Env:          map[string]string{"P": p, "S": "${scope.s}", "R": "RUNNER" + o},
			Config:       map[string]any{"p": p, "q": []any{"x" + o, map[string]any{"s": s}}},
		}
		if out.SystemPrompt != want.SystemPrompt || !maps.Equal(out.Env, want.Env) || !reflect.DeepEqual(out.Config, want.Config) {
			t.Errorf("got  %+v\nwant %+v", out, want)
		}
		var entry struct{ Headers map[string]string }
		if err := json.Unmarshal(out.Servers["u"].Inline, &entry); err != nil || entry.Headers["X"] != p+s || out.Servers["orchestrator"].Headers["X-Agent-Tags"] != s {
			t.Errorf("%s, %v", out.Servers["u"].Inline, err)
		}
		if !slices.Equal(again.Finish[0].Args, []string{p, s}) {
			t.Errorf("%+v", again.Finish)
		}
		if strings.Contains(string(stored), canary) {
			t.Error("a variable that was not given was read")
		}
	})
}

func valid(s string) string {
	b, _ := json.Marshal(s)
	var out string
	_ = json.Unmarshal(b, &out)
	return out
}

// FuzzDocument shows that no document ends the program, and that what is read can be
// resolved or says why not.
func FuzzDocument(f *testing.F) {
	f.Add(whole)
	f.Add("---\ndescription: x\n---\nbody ${params.prompt}")
	f.Add(`{"parameters":{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}}`)
	f.Fuzz(func(t *testing.T, doc string) {
		for _, markdown := range []bool{false, true} {
			var r report
			d := source{path: "x", name: "a", data: []byte(doc), body: markdown, kind: "agent"}.read(blueprintTable, &r)
			if r.err() != nil {
				continue
			}
			d.Check(Known{})
			if res, err := Resolve(d.Blueprint, Input{Parameters: map[string]any{"prompt": "x"}}); err == nil {
				_, _ = res.Fill(map[string]string{"id": "x"})
			}
		}
	})
}

type documents map[string]Document

func (d documents) Blueprints(context.Context) ([]Document, error) {
	var list []Document
	for _, name := range slices.Sorted(maps.Keys(d)) {
		list = append(list, d[name])
	}
	return list, nil
}

func (d documents) Blueprint(_ context.Context, name string) (Document, bool, error) {
	doc, ok := d[name]
	return doc, ok, nil
}

func (d documents) ChangeBlueprint(_ context.Context, name string, change func(*Document) (*Document, error)) error {
	var was *Document
	if doc, ok := d[name]; ok {
		was = &doc
	}
	doc, err := change(was)
	switch {
	case err != nil:
		return err
	case doc == nil:
		delete(d, name)
	default:
		d[name] = *doc
	}
	return nil
}

func TestStore(t *testing.T) {
	ctx := context.Background()
	dir, f := files(t, map[string]string{"agents/file.md": "---\ndescription: one\n---\nx\n", "capabilities/c.md": "---\n---\nFrom c.\n"})
	s := NewStore(func() Folders { return f }, documents{})
	put := func(name, body string) error {
		_, err := s.Put(ctx, Document{Name: name, Owner: "ann", Operator: true, Body: json.RawMessage(body)}, func(Blueprint, *Document) error { return nil })
		return err
	}
	if err := put("file", `{}`); !errors.Is(err, ErrFile) {
		t.Errorf("%v", err)
	}
	if err := put("doc", `{"descripton":"x"}`); err == nil || !strings.Contains(err.Error(), "agent doc:1:2: unknown key") {
		t.Errorf("%v", err)
	}
	for body, want := range map[string]string{
		`{"system_prompt_file":"/etc/passwd"}`:         "reads no files",
		`{"hooks":{"on_run_start":{"command":"./x"}}}`: "starts at no folder",
		`{"name":"other"}`:                             `is "other"`,
		`[]`:                                           "want a map",
		"description: YAML\n":                          "",
		`{"capabilities":["nowhere"]}`:                 "no capability",
		`{"description":"` + strings.Repeat("x", mostFile) + `"}`: "larger than",
	} {
		if err := put("doc", body); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: %v, want %q", body, err, want)
		}
	}
	if err := put("a/b", `{}`); err == nil {
		t.Error("a path is a name")
	}
	if err := put("doc", `{"capabilities":["c"]}`); err != nil {
		t.Fatal(err)
	}
	if b, err := s.Get(ctx, "doc"); err != nil || b.SystemPrompt.Source() != "From c." || b.Source != "" || !b.Operator {
		t.Errorf("%q %q, %v", b.SystemPrompt.Source(), b.Source, err)
	}
	// What there is of its name decides, too, and its owner stays.
	no := errors.New("no")
	refuse := func(b Blueprint, was *Document) error {
		if b.Name != "doc" || was == nil || was.Owner != "ann" {
			t.Errorf("checked %q with %+v", b.Name, was)
		}
		return no
	}
	if _, err := s.Put(ctx, Document{Name: "doc", Owner: "bob", Body: json.RawMessage(`{}`)}, refuse); err != no {
		t.Errorf("%v", err)
	}
	if err := s.Delete(ctx, "doc", func(was Document) error { return refuse(Blueprint{Name: was.Name}, &was) }); err != no {
		t.Errorf("%v", err)
	}
	if err := put("doc", `{"capabilities":["c"]}`); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(ctx); err != nil || list[0].Owner != "ann" {
		t.Errorf("%+v, %v", list, err)
	}
	// An edit counts at once, and so does a file that takes the name of a document.
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("capabilities/c.md", "---\n---\nEdited.\n")
	if b, err := s.Get(ctx, "doc"); err != nil || b.SystemPrompt.Source() != "Edited." {
		t.Errorf("%q, %v", b.SystemPrompt.Source(), err)
	}
	write("agents/doc.md", "---\ndescription: the file\n---\n")
	if b, err := s.Get(ctx, "doc"); err != nil || b.Description != "the file" {
		t.Errorf("%q, %v", b.Description, err)
	}
	list, err := s.List(ctx)
	if err != nil || len(list) != 2 || list[0].Description != "the file" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := s.Get(ctx, "fle"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), `did you mean "file"?`) {
		t.Errorf("%v", err)
	}
	if _, err := s.Get(ctx, "../capabilities/c"); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	sure := func(Document) error { return nil }
	if err := s.Delete(ctx, "file", sure); !errors.Is(err, ErrFile) {
		t.Errorf("%v", err)
	}
	if err := s.Delete(ctx, "doc", sure); err != nil {
		t.Errorf("%v", err)
	}
	if err := s.Delete(ctx, "nothing", sure); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
}

func TestPrivileged(t *testing.T) {
	if keys := mustParse(t, `{"system_prompt":"${scope.x} $${env.X}","mcp_servers":{"files":{}}}`).Privileged(); len(keys) > 0 {
		t.Errorf("%q", keys)
	}
	b := mustParse(t, `{"env":{"A":"${env.X}"},"system_prompt":"${env.X}${env.Y}","tools":"Bash","hooks":{"on_run_finish":{"command":"x"}},"mcp_servers":{"a":{"command":"x"},"b":{"url":"http://a/"}}}`)
	if want := []string{"mcp_servers.a", "mcp_servers.b", "executor_config", "env", "hooks.on_run_finish", "${env.X}", "${env.Y}"}; !slices.Equal(b.Privileged(), want) {
		t.Errorf("%q, want %q", b.Privileged(), want)
	}
}

// What is no secret by its name or its form stays as it is in results.
func TestSecrets(t *testing.T) {
	values := map[string]string{"REGION": "production-eu", "API_KEY": "hunter2hunter2", "OTHER": "sk-ant-0123456789abcdefghijklmnop"}
	want := []string{values["OTHER"], values["API_KEY"]}
	for where, doc := range map[string]string{
		"variables of the gateway": `{"env": {"A": "${env.REGION}", "B": "${env.API_KEY}", "C": "x ${env.OTHER}"}}`,
		"the blueprint's own":      `{"env": {"REGION": "production-eu", "API_KEY": "hunter2hunter2", "OTHER": "sk-ant-0123456789abcdefghijklmnop"}}`,
		"under a secret name":      `{"env": {"A": "${env.REGION}", "TOKEN": "${scope.it}", "C": "${env.OTHER}"}, "scope": {"it": "hunter2hunter2"}}`,
		"settings":                 `{"executor_config": {"a": ["${env.REGION}"], "deep": {"password": "hunter2hunter2", "b": "${env.OTHER}"}}}`,
	} {
		r, err := Resolve(mustParse(t, doc), Input{Parameters: map[string]any{"prompt": "x"}, Env: values})
		if err != nil || !slices.Equal(r.Secrets, want) {
			t.Errorf("%s: secrets %q, %v", where, r.Secrets, err)
		}
	}
	// Of parameters only those that are secrets by their names.
	given := map[string]any{"prompt": values["OTHER"], "login": map[string]any{"passwords": []any{"hunter2hunter2"}, "token_count": "123456"}}
	r, err := Resolve(mustParse(t, `{"parameters": {"type": "object"}}`), Input{Parameters: given})
	if err != nil || !slices.Equal(r.Secrets, []string{"hunter2hunter2"}) {
		t.Errorf("parameters: secrets %q, %v", r.Secrets, err)
	}
}
