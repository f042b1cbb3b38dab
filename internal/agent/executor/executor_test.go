package executor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		text string
		most int
		want string
		cut  bool
	}{{"abc", 3, "abc", false}, {"abc", 2, "ab", true}, {"aé", 2, "a", true}, {"é", 1, "", true}, {"", 0, "", false}} {
		if got, cut := Shorten(tt.text, tt.most); got != tt.want || cut != tt.cut {
			t.Errorf("%q to %d: %q, %v", tt.text, tt.most, got, cut)
		}
	}
}

func TestSecretsOfAProgram(t *testing.T) {
	key := "sk-ant-" + strings.Repeat("Ab1", 12)
	o := Options{Program: Program{Env: map[string]string{"API_KEY": "secret-one", "MODE": "plain", "HEADER": "x " + key, "TOKEN": "short"}}}.Or("name", "command")
	got := o.Secrets()
	slices.Sort(got)
	if want := []string{"secret-one", key}; !slices.Equal(got, want) {
		t.Errorf("they are %q, want %q", got, want)
	}
}

func TestEventsAreBounded(t *testing.T) {
	huge := strings.Repeat("\x01", 1<<20) // six bytes each in JSON
	for _, e := range []Event{Text(huge), Stderr(huge), Returned("1", huge, false), Call("1", "x", json.RawMessage(`"`+strings.Repeat("x", 1<<20)+`"`)), Call("1", "x", json.RawMessage(`{`))} {
		if len(e.Data) > 8*MaxText || !json.Valid(e.Data) {
			t.Errorf("an event of type %s has %d bytes", e.Type, len(e.Data))
		}
	}
	testkit.Has(t, "a long text", string(Text(huge).Data), `"cut":true`)
}

func TestResultOf(t *testing.T) {
	for raw, want := range map[string]api.RunResult{
		``: {}, `null`: {}, `"text"`: {Text: "text"}, `7`: {Data: json.RawMessage(`7`)}, `{"a":1}`: {Data: json.RawMessage(`{"a":1}`)},
		`{"result_text":"t"}`:                         {Text: "t"},
		`{"result_text":null,"result_data":[1]}`:      {Data: json.RawMessage(`[1]`)},
		`{"result_text":"t","result_data":{"n":1.0}}`: {Text: "t", Data: json.RawMessage(`{"n":1.0}`)},
		`{"result_text":7}`:                           {Data: json.RawMessage(`{"result_text":7}`)},
	} {
		if got := ResultOf(json.RawMessage(raw)); got.Text != want.Text || string(got.Data) != string(want.Data) {
			t.Errorf("%s: %+v, want %+v", raw, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	schema := `{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}`
	for _, tt := range []struct {
		schema string
		in     api.RunResult
		data   string
		err    string
	}{
		{"", api.RunResult{Text: "any"}, "", "<nil>"},
		{schema, api.RunResult{Data: json.RawMessage(`{"n":1}`)}, `{"n":1}`, "<nil>"},
		{schema, api.RunResult{Text: ` {"n":1} `}, `{"n":1}`, "<nil>"},
		{schema, api.RunResult{Text: "words"}, "", "the result is no JSON"},
		{schema, api.RunResult{Data: json.RawMessage(`{"n":"x"}`)}, `{"n":"x"}`, "does not fit the agent's schema"},
		{`{"type":7}`, api.RunResult{Data: json.RawMessage(`1`)}, "1", "the agent's schema of the result"},
	} {
		got, err := Fit(json.RawMessage(tt.schema), tt.in)
		if string(got.Data) != tt.data {
			t.Errorf("%+v: %s", tt.in, got.Data)
		}
		testkit.Has(t, "the error", fmt.Sprint(err), tt.err)
	}
}

func TestFailed(t *testing.T) {
	long := strings.Repeat("words\n", 2000) + "the end"
	for want, exit := range map[string]Exit{
		"<nil>":                     {},
		"exited with status 3: why": {Status: 3, Stderr: []byte("why\n")},
		"was killed by SIGTERM":     {Status: 143, Signal: "TERM"},
		"exit status of the executor is not known": {Status: -1},
		"exited with status 4: words":              {Status: 4, Stderr: []byte(long)},
		"exited with status 5: odd \uFFFD bytes":   {Status: 5, Stderr: []byte("odd \xff bytes")},
	} {
		err := fmt.Sprint(Failed(exit))
		if testkit.Has(t, "the error", err, want); len(err) > 3<<10 {
			t.Errorf("the error has %d bytes", len(err))
		}
	}
}
