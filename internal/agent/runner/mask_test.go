package runner

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/secret"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestMask(t *testing.T) {
	m := newMask([]string{"", "sec\"ret/1", "nsecret", "nsecret-long"})
	for in, want := range map[string]string{
		`{"a":"x sec\"ret/1 y"}`:              `{"a":"x **** y"}`,
		`{"a":"sec\u0022ret\/1"}`:             `{"a":"****"}`,
		`["a nsecret-long",{"nsecret":1.10}]`: `["a ****",{"****":1.10}]`,
		`{"a":"\nsecret <b>"}`:                `{"a":"\nsecret <b>"}`, // a newline, and another word
		`{"a":"b"}`:                           `{"a":"b"}`,
		`no json nsecret`:                     `"no json ****"`,
		``:                                    ``,
	} {
		if got := string(m.json(json.RawMessage(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	e := m.failure(&api.Error{Message: "nsecret", Causes: []*api.Error{{Message: "b nsecret"}}})
	if e.Message != secret.Mask || e.Causes[0].Message != "b "+secret.Mask || m.failure(nil) != nil {
		t.Errorf("the error is %+v", e)
	}
	if r := m.result(api.RunResult{Text: "a nsecret", Data: json.RawMessage(`"nsecret"`)}); r.Text != "a "+secret.Mask || string(r.Data) != `"`+secret.Mask+`"` {
		t.Errorf("the result is %+v", r)
	}
}

func FuzzMask(f *testing.F) {
	f.Add([]byte(`{"a":"nsecret"}`), "nsecret")
	f.Add([]byte(`{"a":"\u006esecret"}`), "nsecret")
	f.Fuzz(func(t *testing.T, data []byte, word string) {
		if len(word) < 6 || strings.Contains(secret.Mask, word) || strings.ContainsRune(word, '\uFFFD') {
			return
		}
		m := newMask([]string{word})
		out := m.events([]executor.Event{{Data: data}})[0].Data
		if json.Valid(data) && !json.Valid(out) {
			t.Errorf("%q became %q", data, out)
		}
		var text string
		if json.Valid(data) && json.Unmarshal(out, &text) == nil {
			testkit.Lacks(t, "a text", strings.ReplaceAll(text, secret.Mask, "\x00"), word)
		}
	})
}
