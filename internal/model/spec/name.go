// Package spec reads how the settings name a language model, its address and its price.
package spec

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// The providers.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
	Claude    = "claude-code" // the program
)

// Read finds the provider of a model, its name there, and the address of the endpoint,
// which is nil where the program claude knows its own.
func Read(name, base string) (provider, short string, at *url.URL, err error) {
	if provider, short, err = split(name, base); err == nil {
		at, err = baseURL(name, provider, base)
	}
	return provider, short, at, err
}

// At is the address of the endpoint that a model is at; nil for the program claude.
func At(name, base string) (*url.URL, error) {
	provider, _, at, err := Read(name, base)
	if provider == Claude {
		at = nil
	}
	return at, err
}

// split finds the provider of a model and its name there.
func split(name, base string) (provider, short string, err error) {
	head, rest, slash := strings.Cut(name, "/")
	switch {
	case name == Claude:
		return Claude, "", nil
	case slash && rest != "" && (head == Anthropic || head == OpenAI || head == Claude):
		return head, rest, nil
	case strings.HasPrefix(name, "claude-"):
		return Anthropic, name, nil
	case name != "" && (base != "" || strings.HasPrefix(name, "gpt-")):
		return OpenAI, name, nil
	}
	return "", "", &api.Error{Kind: api.KindInvalid, Final: true, Message: fmt.Sprintf(
		"model %q: no provider has such a name; write anthropic/NAME, openai/NAME or claude-code, or set base_url", name)}
}

// baseURL checks the address of an endpoint and fills in what is usual.
func baseURL(name, provider, given string) (*url.URL, error) {
	if given == "" {
		switch provider {
		case Anthropic:
			given = "https://api.anthropic.com"
		case OpenAI:
			given = "https://api.openai.com/v1"
		default:
			return nil, nil
		}
	}
	u, err := url.Parse(given)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The address is not repeated, as a key may stand in it.
		return nil, &api.Error{Kind: api.KindInvalid, Final: true, Message: fmt.Sprintf(
			"model %q: base_url must be like https://host/v1, without a user, a query or a fragment; the key goes to key_env", name)}
	}
	u.Path = strings.TrimRight(u.Path, "/")
	switch {
	case provider == OpenAI && u.Path == "":
		u.Path = "/v1"
	case provider != OpenAI:
		u.Path = strings.TrimSuffix(u.Path, "/v1") // the version belongs to the path of a request
	}
	u.Path += "/"
	return u, nil
}
