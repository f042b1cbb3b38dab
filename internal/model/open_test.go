package model_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestWhereRequestsGo(t *testing.T) {
	for _, tt := range []struct{ name, base, want, asked string }{
		{"claude-opus-5-5", "", "https://api.anthropic.com/v1/messages", "claude-opus-5-5"},
		{"anthropic/claude-opus-5-5", "", "https://api.anthropic.com/v1/messages", "claude-opus-5-5"},
		{"anthropic/claude-opus-5-5", "http://localhost:8080/", "http://localhost:8080/v1/messages", "claude-opus-5-5"},
		{"claude-opus-5-5", "https://proxy.test/llm/v1", "https://proxy.test/llm/v1/messages", "claude-opus-5-5"},
		{"gpt-5", "", "https://api.openai.com/v1/chat/completions", "gpt-5"},
		{"openai/gpt-5", "", "https://api.openai.com/v1/chat/completions", "gpt-5"},
		{"openai/openai/gpt-oss", "http://[::1]:11434", "http://[::1]:11434/v1/chat/completions", "openai/gpt-oss"},
		{"openai/anthropic/claude", "https://router.test/api/v1", "https://router.test/api/v1/chat/completions", "anthropic/claude"},
		{"gpt-5", "https://proxy.test/https://api.test/v1", "https://proxy.test/https://api.test/v1/chat/completions", "gpt-5"},
		{"qwen/qwen3:30b", "http://127.0.0.1:11434/v1/", "http://127.0.0.1:11434/v1/chat/completions", "qwen/qwen3:30b"},
	} {
		var got string
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			got = r.URL.String()
			return nil, errors.New("not sent")
		})}
		failed(t, open(t, nil, tt.name, model.Options{BaseURL: tt.base, Client: client, Retries: -1}), question("?"), nil)
		if got != tt.want {
			t.Errorf("%s at %q: sent to %q, want %q", tt.name, tt.base, got, tt.want)
		}
	}
}

func TestNamesThatAreNone(t *testing.T) {
	for _, tt := range []struct{ name, base, want string }{
		{"", "", "write anthropic/NAME"},
		{"", "http://127.0.0.1", "write anthropic/NAME"},
		{"llama", "", "set base_url"},
		{"anthropic/", "", "write anthropic/NAME"},
		{"claude", "", "claude-code"},
		{"local", "127.0.0.1:8080", "base_url must be like"},
		{"local", "ftp://host/v1", "base_url must be like"},
		{"local", "http://user:secret@host/v1", "base_url must be like"},
		{"local", "http://host/v1?key=secret", "base_url must be like"},
		{"claude-code", "http://secret@host", "base_url must be like"},
	} {
		_, err := model.Open(tt.name, model.Options{BaseURL: tt.base})
		e := asAPI(t, err)
		if e.Kind != api.KindInvalid {
			t.Errorf("%q: %+v", tt.name, e)
		}
		testkit.Has(t, "error", e.Message, tt.want)
		testkit.Lacks(t, "error", e.Message, "secret")
	}
}

func TestRequestsThatAreWrong(t *testing.T) {
	user, said := model.Message{Role: "user", Text: "?"}, model.Message{Role: "assistant", Text: "!"}
	calls := model.Message{Role: "assistant", Calls: []model.Call{{ID: "a", Name: "add", Arguments: []byte(`{}`)}}}
	result := model.Message{Role: "user", Results: []model.Result{{ID: "a"}}}
	for _, tt := range []struct {
		r    model.Request
		want string
	}{
		{model.Request{}, "no messages"},
		{model.Request{Messages: []model.Message{said}}, "begin with one of the user"},
		{model.Request{Messages: []model.Message{user, said}}, "end with one of the user"},
		{model.Request{Messages: []model.Message{{Role: "system", Text: "x"}}}, `role "system"`},
		{model.Request{Messages: []model.Message{{Role: "user", Text: " \n"}}}, "message 1 is empty"},
		{model.Request{Messages: []model.Message{{Role: "user", Text: "?", Calls: calls.Calls}}}, "only the assistant calls tools"},
		{model.Request{Messages: []model.Message{user, {Role: "assistant", Text: "!", Results: result.Results}}}, "results are of the user"},
		{model.Request{Messages: []model.Message{user, calls, user}}, `leaves the call "a" without a result`},
		{model.Request{Messages: []model.Message{user, said, result}}, `a result for the call "a"`},
		{model.Request{Messages: []model.Message{user, calls, {Role: "user", Results: []model.Result{{ID: "a"}, {ID: "a"}}}}}, `a result for the call "a"`},
		{model.Request{Messages: []model.Message{user, {Role: "assistant", Calls: []model.Call{{ID: "a", Name: "add", Arguments: []byte(`{`)}}}, result}}, "JSON arguments"},
		{model.Request{Messages: []model.Message{user}, Tools: []model.Tool{{Name: "a"}, {Name: "a"}}}, "twice"},
		{model.Request{Messages: []model.Message{user}, Tools: []model.Tool{{Name: "a", Schema: []byte(`[]`)}}}, "no JSON object"},
		{model.Request{Messages: []model.Message{user}, MaxTokens: -1}, "max tokens"},
	} {
		e := failed(t, open(t, nil, claudeName, model.Options{Client: unreachable(t)}), tt.r, nil)
		if e.Kind != api.KindInvalid {
			t.Errorf("%+v", e)
		}
		testkit.Has(t, "error", e.Message, claudeName, tt.want)
	}
}
