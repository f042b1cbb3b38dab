package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const coerceSchema = `{
	"type": "object",
	"$defs": {
		"Color": {"type": "string", "enum": ["red", "green"]},
		"Loop": {"$ref": "#/$defs/Loop"},
		"a/b": {"type": "integer"}
	},
	"definitions": {"Old": {"type": "boolean"}},
	"properties": {
		"s": {"type": "string"},
		"i": {"type": "integer"},
		"n": {"type": "number"},
		"b": {"type": "boolean"},
		"a": {"type": "array", "items": {"type": "integer"}},
		"o": {"type": "object"},
		"any": {},
		"true": true,
		"wrong": {"type": 7, "enum": "x"},
		"nulltype": {"type": null},
		"optional": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null},
		"both": {"type": ["string", "integer"]},
		"maybe": {"type": ["integer", "null"]},
		"color": {"$ref": "#/$defs/Color"},
		"allcolor": {"allOf": [{"$ref": "#/$defs/Color"}]},
		"optcolor": {"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}]},
		"opencolor": {"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "string"}]},
		"mixed": {"enum": ["1", 1, 2, null, true]},
		"const": {"const": 5},
		"loop": {"$ref": "#/$defs/Loop"},
		"escaped": {"$ref": "#/$defs/a~1b"},
		"old": {"$ref": "#/definitions/Old"},
		"gone": {"$ref": "#/$defs/Nothing"},
		"elsewhere": {"$ref": "other.json"},
		"oneof": {"oneOf": [{"type": "boolean"}, {"type": "array"}]}
	}
}`

func TestCoerce(t *testing.T) {
	schema := newToolSchema("x", json.RawMessage(coerceSchema))
	tests := []struct {
		key, text string
		want      string // empty: a mistake
	}{
		{"s", "x", `"x"`},
		{"s", "", `""`},
		{"s", "5", `"5"`},
		{"s", `<a & "b">` + "\n", `"<a & \"b\">\n"`},
		{"s", " x ", `" x "`},
		{"i", "5", `5`},
		{"i", "-0", `-0`},
		{"i", "12345678901234567890", `12345678901234567890`},
		{"i", "5\n", `5`},
		{"i", "5.0", ""},
		{"i", "007", ""},
		{"i", "+5", ""},
		{"i", "1e3", ""},
		{"i", "", ""},
		{"n", "1.10", `1.10`},
		{"n", "-1e400", `-1e400`},
		{"n", "0.1000000000000000055511151231257827", `0.1000000000000000055511151231257827`},
		{"n", "NaN", ""},
		{"n", "0x10", ""},
		{"n", ".5", ""},
		{"b", "true", `true`},
		{"b", "false", `false`},
		{"b", "True", ""},
		{"b", "1", ""},
		{"a", `[1, 12345678901234567890]`, `[1, 12345678901234567890]`},
		{"a", `1,2`, ""},
		{"a", `{"a":1}`, ""},
		{"o", `{"z":1,"a":2}`, `{"z":1,"a":2}`},
		{"o", `[`, ""},
		{"o", `null`, ""},
		{"any", "5", `"5"`},
		{"true", "5", `"5"`},
		{"wrong", "5", `"5"`},
		{"nulltype", "5", `"5"`},
		{"optional", "5", `5`},
		{"optional", "null", `null`},
		{"optional", "x", ""},
		{"both", "5", `"5"`},
		{"maybe", "null", `null`},
		{"color", "red", `"red"`},
		{"color", "blue", ""},
		{"allcolor", "blue", ""},
		{"allcolor", "green", `"green"`},
		{"optcolor", "green", `"green"`},
		{"optcolor", "null", `null`},
		{"optcolor", "blue", ""},
		{"opencolor", "blue", `"blue"`},
		{"mixed", "1", `"1"`},
		{"mixed", "2", `2`},
		{"mixed", "null", `null`},
		{"mixed", "true", `true`},
		{"mixed", "3", ""},
		{"const", "5", `5`},
		{"const", "6", ""},
		{"loop", "5", `"5"`},
		{"escaped", "5", `5`},
		{"old", "true", `true`},
		{"gone", "5", `"5"`},
		{"elsewhere", "5", `"5"`},
		{"oneof", "[]", `[]`},
		{"oneof", "x", ""},
		{"unknown", "5", `"5"`},
	}
	for _, tt := range tests {
		got, err := schema.coerce(tt.key, tt.text)
		var use *usageError
		switch {
		case tt.want == "" && !errors.As(err, &use):
			t.Errorf("%s=%q: got %s, %v; want a mistake of use", tt.key, tt.text, got, err)
		case tt.want != "" && (err != nil || string(got) != tt.want):
			t.Errorf("%s=%q: got %s, %v; want %s", tt.key, tt.text, got, err, tt.want)
		}
	}
}

func TestCoerceAdditional(t *testing.T) {
	for _, tt := range []struct {
		schema, want, remark string
		forbidden            bool
	}{
		{`{"properties":{"a":{}},"additionalProperties":{"type":"integer"}}`, `5`, "", false},
		{`{"properties":{"a":{}},"additionalProperties":true}`, `"5"`, "", false},
		{`{"properties":{"limit":{}}}`, `"5"`, "(did you mean limit?)", false},
		{`{"properties":{"limit":{}},"additionalProperties":false}`, "", "(did you mean limit?)", true},
		{`{"properties":{"other":{}},"additionalProperties":false}`, "", "it has other", true},
		{`{"additionalProperties":false}`, "", "it takes none", true},
		{`{}`, `"5"`, "", false},
		{`true`, `"5"`, "", false},
		{``, `"5"`, "", false},
	} {
		s := newToolSchema("x", json.RawMessage(tt.schema))
		got, err := s.coerce("limt", "5")
		if string(got) != tt.want || (err != nil) != tt.forbidden {
			t.Errorf("%s: got %s, %v; want %s", tt.schema, got, err, tt.want)
		}
		remark, forbidden := s.undeclared("limt")
		if !strings.Contains(remark, tt.remark) || (remark == "") != (tt.remark == "") || forbidden != tt.forbidden {
			t.Errorf("%s: remark %q, forbidden %v; want %q", tt.schema, remark, forbidden, tt.remark)
		}
	}
}

func TestArguments(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	schema := newToolSchema("x", json.RawMessage(coerceSchema))
	tests := []struct {
		name  string
		base  string
		pairs []string
		stdin string
		want  string // empty: a mistake
	}{
		{"none", "", nil, "", `{}`},
		{"order", "", []string{"s=b", "i=1", "a:=[ 1 ]"}, "", `{"s":"b","i":1,"a":[ 1 ]}`},
		{"value with =", "", []string{"s=a=b:=c"}, "", `{"s":"a=b:=c"}`},
		{"key with colon", "", []string{"a:b=c"}, "", `{"a:b":"c"}`},
		{"file", "", []string{"s=@" + file("text", "line\n<é>\n")}, "", `{"s":"line\n<é>\n"}`},
		{"file by schema", "", []string{"i=@" + file("number", "12345678901234567890\n")}, "", `{"i":12345678901234567890}`},
		{"file of JSON", "", []string{"any:=@" + file("json", " [1.0] \n")}, "", `{"any":[1.0]}`},
		{"binary file", "", []string{"s=@" + file("binary", "\xff\xfe")}, "", ""},
		{"no file", "", []string{"s=@" + filepath.Join(dir, "none")}, "", ""},
		{"at alone", "", []string{"s=@"}, "", ""},
		{"at as JSON", "", []string{`s:="@x"`}, "", `{"s":"@x"}`},
		{"stdin", "", []string{"s=@-"}, "piped", `{"s":"piped"}`},
		{"stdin twice", "", []string{"s=@-", "any=@-"}, "piped", ""},
		{"base alone keeps bytes", `{ "n": 12345678901234567890,"n":1 }`, nil, "", `{ "n": 12345678901234567890,"n":1 }`},
		{"base and pairs", `{"z": 1.50, "s": "old", "a": null}`, []string{"s=new", "b=true"}, "", `{"z":1.50,"s":"new","a":null,"b":true}`},
		{"base no object", `[1]`, nil, "", ""},
		{"base no JSON", `{"a"}`, nil, "", ""},
		{"base and more", `{} {}`, nil, "", ""},
		{"base not UTF-8", "{\"a\":\"\xff\"}", nil, "", ""},
		{"twice", "", []string{"s=1", "s=2"}, "", ""},
		{"raw no JSON", "", []string{"s:=x"}, "", ""},
		{"raw empty", "", []string{"s:="}, "", ""},
		{"raw not UTF-8", "", []string{"s:=\"\xff\""}, "", ""},
		{"no pair", "", []string{"s"}, "", ""},
		{"no key", "", []string{":=1"}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tc := newTestCLI(t)
			tc.stdin = strings.NewReader(tt.stdin)
			got, err := func() (json.RawMessage, error) {
				var pairs []pair
				for _, arg := range tt.pairs {
					p, err := parsePair(arg)
					if err != nil {
						return nil, err
					}
					pairs = append(pairs, p)
				}
				return arguments([]byte(tt.base), pairs, schema, tc.openArgument())
			}()
			if tt.want == "" {
				if exitCode(err) != exitUsage || err == nil {
					t.Errorf("got %s, %v; want a mistake of use", got, err)
				}
				return
			}
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

// A text that parses becomes an object with just that key, and its value is the
// text that was given, or JSON that was.
func FuzzParsePair(f *testing.F) {
	for _, s := range []string{"a=b", "a:=1", "a=@f", "a:=@f", "=", ":=", "a", "a:b:=[1]", "é=\u2028", `"=\`, "a:= {} ", "n=12345678901234567890", "a=\xff", "<=>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		p, err := parsePair(arg)
		if err != nil {
			if exitCode(err) != exitUsage {
				t.Fatalf("%q: %v is not a mistake of use", arg, err)
			}
			return
		}
		const content = "content"
		args, err := arguments(nil, []pair{p}, toolSchema{}, func(string) ([]byte, error) { return []byte(content), nil })
		if err != nil {
			if !p.raw {
				t.Fatalf("%q: %v", arg, err)
			}
			return
		}
		if !utf8.Valid(args) {
			t.Fatalf("%q: %q is not UTF-8", arg, args)
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(args, &m); err != nil || len(m) != 1 {
			t.Fatalf("%q: %s: %v", arg, args, err)
		}
		value, ok := m[p.key]
		if !ok {
			t.Fatalf("%q: no key %q in %s", arg, p.key, args)
		}
		if p.raw {
			return
		}
		want := p.value
		if p.file {
			want = content
		}
		var s string
		if err := json.Unmarshal(value, &s); err != nil || s != want {
			t.Fatalf("%q: value %q, %v; want %q", arg, s, err, want)
		}
	})
}

// Taking an object apart and joining it changes nothing but white space.
func FuzzSplitObject(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1,"a":2}`, `{"z":12345678901234567890,"a":[1.0]}`, `[]`, `{"\ud800":1}`, "{\"\xff\":1}", `{"a":{"b":"<"}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		members, err := splitObject(raw)
		if err != nil {
			return
		}
		again, err := splitObject(joinObject(members))
		if err != nil || len(again) != len(members) {
			t.Fatalf("%s became %s: %v", raw, joinObject(members), err)
		}
		for i := range members {
			if members[i].key != again[i].key || string(members[i].value) != string(again[i].value) {
				t.Fatalf("%s became %s", raw, joinObject(members))
			}
		}
	})
}

func FuzzCoerce(f *testing.F) {
	f.Add(coerceSchema, "i", "5")
	f.Add(`{"properties":{"a":{"anyOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/x"}]}},"$defs":{"x":{"anyOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/x"}]}}}`, "a", "x")
	f.Fuzz(func(t *testing.T, schema, key, text string) {
		if !utf8.ValidString(text) {
			return // parsePair lets none through
		}
		got, err := newToolSchema("x", json.RawMessage(schema)).coerce(key, text)
		if err == nil && !json.Valid(got) {
			t.Fatalf("%s is not JSON", got)
		}
	})
}
