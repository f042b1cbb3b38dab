package signature

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"a -> b":                     "a -> b: str",
		" text , n:int->out : float": "text, n: int -> out: float",
		"x: list[int] -> y: dict[str, list[bool]]":  "x: list[int] -> y: dict[str, list[bool]]",
		"x: str|None -> y: list[int | None] | None": "x: str | None -> y: list[int | None] | None",
		"x: list, y: dict -> z: Any":                "x: list, y: dict -> z: Any",
		"x: array -> z: string, n: number":          "x: list -> z: str, n: float",
		"deep_reasoning":                            "context: str, query: str -> answer: str",
		" deep_reasoning_multi ":                    "documents: Any, query: str -> answer: str",
	} {
		s, err := Parse(text)
		if err != nil || s.String() != want {
			t.Errorf("%q is %s, %v", text, s, err)
			continue
		}
		again, err := Parse(s.String())
		if err != nil || again.String() != want {
			t.Errorf("%q, written and read again, is %s, %v", text, again, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"":                       "no ->",
		"a":                      "no ->",
		"-> b":                   "lacks a name before",
		"a ->":                   "lacks a name after",
		"a, -> b":                "lacks a name before",
		"a b -> c":               `from "b"`,
		"a -> b -> c":            `from "-> c"`,
		"1a -> b":                "lacks a name",
		"a: nothing -> b":        "none of str",
		"a: list[int -> b":       "a ] is missing",
		"a: list[int, int] -> b": "takes 1 types",
		"a: dict[int, str] -> b": "keys of a dict",
		"a: str[int] -> b":       "takes 0 types",
		"a, a -> b":              "a twice",
		"a -> a":                 "on both sides",
		"a: int | str -> b":      "where None can stand",
		"a -> class":             "the name class, which has a meaning",
		"llm_query -> a":         "choose another",
		"a -> b: " + strings.Repeat("list[", 20) + "int" + strings.Repeat("]", 20): "types deep",
		strings.Repeat("a", 5000) + " -> b":                                        "bytes",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is %s, %v", text, s, err)
		}
	}
}

func TestCheck(t *testing.T) {
	s, err := Parse("x -> n: int, f: float, l: list[str], d: dict[str, int], a: Any, b: bool")
	if err != nil {
		t.Fatal(err)
	}
	good := `{"b":true,"n":2.0,"f":1,"l":["é"],"d":{"k":3},"a":[null]}`
	if got, err := s.Check([]byte(good)); err != nil || string(got) != `{"n":2,"f":1,"l":["é"],"d":{"k":3},"a":[null],"b":true}` {
		t.Errorf("got %s, %v", got, err)
	}
	for bad, says := range map[string]string{
		`[1]`:                                  "no JSON object",
		`{"f":1,"l":[],"d":{},"a":0,"b":true}`: "n is missing",
		`{"n":"1","f":1,"l":[],"d":{},"a":0,"b":true}`:      "n is a str, not a int",
		`{"n":1.5,"f":1,"l":[],"d":{},"a":0,"b":true}`:      "n is a float, not a int",
		`{"n":1,"f":null,"l":[],"d":{},"a":0,"b":true}`:     "f is a None",
		`{"n":1,"f":1,"l":["a",2],"d":{},"a":0,"b":true}`:   "l has an element 1 that is a int, not a str",
		`{"n":1,"f":1,"l":[],"d":{"k":"v"},"a":0,"b":true}`: `d has a value at "k" that is a str`,
		`{"n":1,"f":1,"l":[],"d":{},"a":0,"b":true,"z":1}`:  "z is not asked for",
		`{"n":true,"f":1,"l":[],"d":{},"a":0,"b":1}`:        "b is a int, not a bool",
	} {
		if got, err := s.Check([]byte(bad)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %s, %v", bad, got, err)
		}
	}
}

func TestInputs(t *testing.T) {
	s, err := Parse("free, s: str, n: str | None, f: float, l: list[int], a: Any -> x")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		value, python string
		fit           string // the names of those that take it
	}{
		{`"x"`, "str", "free s n a"},
		{`1`, "int", "free f a"},
		{`1.5`, "float", "free f a"},
		{`[1]`, "list", "free l a"},
		{`["x"]`, "", "free a"},
		{`null`, "NoneType", "free n a"},
		{"", "bytes", "free a"},
		{"", "DataFrame", "free s n f l a"},
	} {
		var values, variables []string
		for _, f := range s.Inputs {
			if tt.value != "" && f.Input([]byte(tt.value)) == nil {
				values = append(values, f.Name)
			}
			if tt.python != "" && f.Holds(tt.python) == nil {
				variables = append(variables, f.Name)
			}
		}
		if got := strings.Join(values, " "); tt.value != "" && got != tt.fit {
			t.Errorf("%s fits %s", tt.value, got)
		}
		if got := strings.Join(variables, " "); tt.python != "" && got != tt.fit {
			t.Errorf("a %s fits %s", tt.python, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a: list[int], b -> c: dict[str, Any]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if again, err := Parse(s.String()); err != nil || again.String() != s.String() {
			t.Errorf("%q is %s, and %s when it is read again: %v", text, s, again, err)
		}
	})
}
