package hook

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAnswers(t *testing.T) {
	for output, want := range map[string]Answer{
		"":                                  {},
		" \n\t":                             {},
		"{}\n":                              {},
		`{"parameters":null,"refuse":null}`: {},
		`{"parameters":{"n":12345678901234567890}}`:      {Parameters: map[string]any{"n": json.Number("12345678901234567890")}},
		`{"parameters":{}}`:                              {Parameters: map[string]any{}},
		`{"refuse":" not today "}`:                       {Refused: true, Reason: "not today"},
		`{"refuse":""}`:                                  {Refused: true, Reason: "it gave no reason"},
		`{"refuse":"` + strings.Repeat("é", 2000) + `"}`: {Refused: true, Reason: strings.Repeat("é", mostReason/2) + "..."},
	} {
		if got, err := ReadAnswer([]byte(output)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%.80s: %+v, %v", output, got, err)
		}
	}
	for output, want := range map[string]string{
		"ok\n":                            "it must print nothing, or one JSON object",
		"null":                            "one JSON object",
		`[{"refuse":"x"}]`:                "one JSON object",
		`{"refuse":"x"`:                   "unexpected EOF",
		`{"refused":"x"}`:                 `unknown field "refused"`,
		`{"refuse":true}`:                 "cannot unmarshal",
		`{"parameters":[]}`:               "cannot unmarshal",
		`{} {"refuse":"x"}`:               "more than one",
		`{}]`:                             "more than one",
		`{"parameters":{},"refuse":"no"}`: "printed both",
	} {
		if got, err := ReadAnswer([]byte(output)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", output, got, err, want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{"", "ok", `{}`, `{"parameters":{"a":[1,2.50,{"b":null}]}}`, `{"refuse":"no"}`, `{"refuse":"\ud800"}`, `{"PARAMETERS":{}}`, "{\"refuse\":\"\xff\"}", `{"parameters":{}}x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		a, err := ReadAnswer(output)
		switch {
		case err != nil:
			if a.Refused || a.Parameters != nil {
				t.Errorf("a wrong answer says %+v", a)
			}
			return
		case a.Refused:
			if a.Parameters != nil || a.Reason == "" || len(a.Reason) > mostReason+3 || !utf8.ValidString(a.Reason) {
				t.Errorf("refused with %+v", a)
			}
			return
		case a.Parameters == nil:
			return
		}
		again, err := json.Marshal(map[string]any{"parameters": a.Parameters})
		if err != nil {
			t.Fatalf("the parameters are no JSON: %v", err)
		}
		if b, err := ReadAnswer(again); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("read %+v, and again %+v (%v)", a, b, err)
		}
	})
}
