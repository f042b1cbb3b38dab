package model_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestNoKey(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    model.Options
		want string
	}{
		{claudeName, model.Options{}, "ANTHROPIC_API_KEY"},
		{gptName, model.Options{}, "OPENAI_API_KEY"},
		{claudeName, model.Options{KeyEnv: "MY_KEY"}, "MY_KEY"},
		{"local", model.Options{KeyEnv: "MY_KEY", BaseURL: "http://127.0.0.1:1"}, "MY_KEY"},
		{"claude-code", model.Options{KeyEnv: "MY_KEY", CLI: "/nonexistent"}, "MY_KEY"},
	} {
		tt.o.Environ, tt.o.Client = environ("OTHER", "x"), unreachable(t)
		e := failed(t, open(t, nil, tt.name, tt.o), question("?"), nil)
		if e.Kind != api.KindRefused || e.Retryable || !e.Final {
			t.Errorf("error %+v", e)
		}
		testkit.Has(t, "error", e.Message, tt.name, "set the environment variable "+tt.want)
	}
}

// A key of the environment is for its provider: another endpoint gets one that is named.
func TestNoKeyForOtherEndpoints(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Text: "Ah"}, modeltest.Reply{Status: 401})
		base := s.URL
		if name != claudeName {
			base = s.ChatURL
		}
		m := open(t, nil, name, model.Options{BaseURL: base, Client: s.Client()})
		ask(t, m, question("?"), delta)
		if key := s.Requests()[0].Key(); key != "" {
			t.Errorf("key %q", key)
		}
		e := failed(t, m, question("?"), delta)
		testkit.Has(t, "error", e.Message, "wants a key", "--key-env")
	})
}

func TestKeyOfTheCaller(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Text: "Ah"}, modeltest.Reply{Status: 401, Message: "wrong key " + testKey})
		key := func(context.Context) (string, error) { return " other-key\n", nil }
		m := open(t, s, name, model.Options{Key: key, KeyEnv: "UNUSED"})
		ask(t, m, question("?"), delta)
		if got := s.Requests()[0].Key(); got != "other-key" {
			t.Errorf("key %q", got)
		}
		e := failed(t, m, question("?"), delta)
		testkit.Has(t, "error", e.Message, "check the credential")
		testkit.Lacks(t, "error", e.Message, "UNUSED", "wrong key")
	})
}

func TestKeyThatFails(t *testing.T) {
	known := &api.Error{Kind: api.KindRefused, Message: "log in first"}
	for _, tt := range []struct {
		key  func(context.Context) (string, error)
		want string
	}{
		{func(context.Context) (string, error) { return "", errors.New("the vault is sealed") }, "no key: the vault is sealed"},
		{func(context.Context) (string, error) { return "", known }, "log in first"},
		{func(context.Context) (string, error) { return "secret\nX-Other: y", nil }, "set it again"},
		{func(context.Context) (string, error) { return "schlüssel", nil }, "set it again"},
	} {
		e := failed(t, open(t, nil, claudeName, model.Options{Key: tt.key, Client: unreachable(t)}), question("?"), nil)
		if e.Kind != api.KindRefused {
			t.Errorf("error %+v", e)
		}
		testkit.Has(t, "error", e.Message, tt.want)
		testkit.Lacks(t, "error", e.Message, "secret", "schlüssel")
	}
}

// What the providers' own clients read from the environment is not used.
func TestEnvironmentOfTheProcess(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "not-this")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "not-this")
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Not: this")
	t.Setenv("OPENAI_API_KEY", "not-this")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("OPENAI_ORG_ID", "not-this")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Not: this")
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Text: "Ah"})
		ask(t, open(t, s, name, model.Options{}), question("?"), delta)
		sent := s.Requests()[0]
		for header, values := range sent.Header {
			for _, v := range values {
				testkit.Lacks(t, header, v, "not-this", "this")
			}
		}
		if sent.Key() != testKey {
			t.Errorf("key %q", sent.Key())
		}
	})
}
