package model_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testKey = "sk-test-0123456789abcdef"

// environ is an environment with these variables only.
func environ(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// keysSet has a key for both providers.
var keysSet = environ("ANTHROPIC_API_KEY", testKey, "OPENAI_API_KEY", testKey)

// The models of the tests, which are in the table of prices.
const (
	claudeName = "anthropic/claude-sonnet-4-5"
	gptName    = "openai/gpt-4.1"
)

// open opens a model at the scripted endpoint.
func open(t testing.TB, s *modeltest.Server, name string, o model.Options) model.Model {
	t.Helper()
	if s != nil {
		o.BaseURL = cmp.Or(o.BaseURL, s.URL)
		env := "ANTHROPIC_API_KEY"
		if o.BaseURL == s.URL && name != claudeName {
			o.BaseURL, env = s.ChatURL, "OPENAI_API_KEY"
		}
		o.KeyEnv = cmp.Or(o.KeyEnv, env)
		if o.Client == nil {
			o.Client = s.Client()
		}
	}
	if o.Environ == nil {
		o.Environ = keysSet
	}
	m, err := model.Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// each runs a test against both formats, streamed and not. delta is nil if it is not.
func each(t *testing.T, run func(t *testing.T, name string, delta func(string))) {
	for _, name := range []string{claudeName, gptName} {
		for _, kind := range []string{"whole", "stream"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				var delta func(string)
				if kind == "stream" {
					delta = func(string) {}
				}
				run(t, name, delta)
			})
		}
	}
}

// question is a conversation of one message.
func question(text string) model.Request {
	return model.Request{Messages: []model.Message{{Role: model.RoleUser, Text: text}}}
}

// failed asks, and returns the error as the API has it.
func failed(t testing.TB, m model.Model, r model.Request, delta func(string)) *api.Error {
	t.Helper()
	_, err := m.Ask(t.Context(), r, delta)
	return asAPI(t, err)
}

func asAPI(t testing.TB, err error) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is none of the API", err)
	}
	if e.Message != err.Error() {
		t.Errorf("the API has the message %q, the error %q", e.Message, err)
	}
	return e
}

func ask(t testing.TB, m model.Model, r model.Request, delta func(string)) model.Reply {
	t.Helper()
	reply, err := m.Ask(t.Context(), r, delta)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// unreachable is a client that sends nothing.
func unreachable(t testing.TB) *http.Client {
	return &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		t.Error("a request was sent")
		return nil, context.Canceled
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
