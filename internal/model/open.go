package model

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

// DefaultMaxTokens is the output of a request without MaxTokens, where the provider
// or a budget wants a number. Models that think count that too.
const DefaultMaxTokens = 16384

// Options say how a model is reached. The zero value works.
type Options struct {
	// BaseURL is the endpoint: https://api.anthropic.com and the like, or
	// https://host/v1 of an endpoint that is compatible with OpenAI's.
	BaseURL string
	// Key returns the key of a call; nil takes it from the environment.
	Key func(ctx context.Context) (string, error)
	// KeyEnv names the variable with the key, by default ANTHROPIC_API_KEY or
	// OPENAI_API_KEY. The program claude gets a key only if KeyEnv or Key is set.
	KeyEnv string
	// Environ returns a variable of the environment; nil is os.Getenv. The program
	// claude gets the variables that it needs by this, too.
	Environ func(name string) string
	// Client sends the requests; nil is one with the default transport. Redirects are
	// not followed. The program claude sends its requests itself.
	Client *http.Client
	// Prices are over DefaultPrices.
	Prices Prices
	// Retries is how often a failed attempt is repeated. Zero is 3, negative is never.
	Retries int
	// Timeout limits one attempt; by default ten minutes. Total limits the call with all
	// attempts and pauses; by default twice as long.
	Timeout, Total time.Duration
	// MaxReply limits the bytes of a reply, as they are transferred; by default 32 MiB.
	MaxReply int64
	// CLI is the program claude; empty looks for it on PATH.
	CLI string
	// Start starts the program claude; nil is the function Start.
	Start func(*exec.Cmd) (*Process, error)
	Log   *slog.Logger
}

const (
	defaultRetries  = 3
	defaultTimeout  = 10 * time.Minute
	defaultMaxReply = 32 << 20
)

const (
	providerAnthropic = "anthropic"
	providerOpenAI    = "openai"
	providerCLI       = "claude-code"
)

// Open returns a model by its name. Nothing is sent, and a missing key is an error of
// Ask.
//
// The part of the name before the first slash is the provider, if it is one of the
// three. An endpoint's own name may have such a part too: openai/openai/gpt-oss-120b.
func Open(name string, o Options) (Model, error) {
	provider, short, err := split(name, o.BaseURL)
	if err != nil {
		return nil, err
	}
	base, err := baseURL(name, provider, o.BaseURL)
	if err != nil {
		return nil, err
	}
	if o.Environ == nil {
		o.Environ = os.Getenv
	}
	if o.Retries == 0 {
		o.Retries = defaultRetries
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Total <= 0 {
		o.Total = 2 * o.Timeout
	}
	if o.MaxReply <= 0 {
		o.MaxReply = defaultMaxReply
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &client{
		name: name, retries: max(o.Retries, 0), timeout: o.Timeout, total: o.Total, log: o.Log,
		keys: keys{from: o.Key, environ: o.Environ, env: o.KeyEnv},
	}
	prices := DefaultPrices().With(o.Prices)
	if p, ok := prices.find(provider, short); ok {
		c.price = &p
	}
	ask := endpoint{base: base, model: short, client: o.Client, max: o.MaxReply}
	switch provider {
	case providerAnthropic:
		c.keys.env, c.keys.required = cmp.Or(o.KeyEnv, "ANTHROPIC_API_KEY"), true
		c.provider = newAnthropic(ask)
	case providerOpenAI:
		// Endpoints other than OpenAI's own are often local and want no key.
		c.keys.env, c.keys.required = cmp.Or(o.KeyEnv, "OPENAI_API_KEY"), o.BaseURL == "" || o.KeyEnv != ""
		c.provider = newOpenAI(ask)
	case providerCLI:
		c.keys.required = o.KeyEnv != ""
		c.slots = make(chan struct{}, maxPrograms)
		c.provider = newProgram(o, base, short, prices)
	}
	return c, nil
}

// At is the address of the endpoint that a model is at; nil for the program claude, which
// knows its own.
func At(name, base string) (*url.URL, error) {
	provider, _, err := split(name, base)
	if err != nil {
		return nil, err
	}
	at, err := baseURL(name, provider, base)
	if err != nil || provider == providerCLI {
		return nil, err
	}
	return at, nil
}

// split finds the provider of a model and its name there.
func split(name, base string) (provider, short string, err error) {
	head, rest, slash := strings.Cut(name, "/")
	switch {
	case name == providerCLI:
		return providerCLI, "", nil
	case slash && rest != "" && (head == providerAnthropic || head == providerOpenAI || head == providerCLI):
		return head, rest, nil
	case strings.HasPrefix(name, "claude-"):
		return providerAnthropic, name, nil
	case name != "" && (base != "" || strings.HasPrefix(name, "gpt-")):
		return providerOpenAI, name, nil
	}
	return "", "", &api.Error{Kind: api.KindInvalid, Final: true, Message: fmt.Sprintf(
		"model %q: no provider has such a name; write anthropic/NAME, openai/NAME or claude-code, or set base_url", name)}
}

// baseURL checks the address of an endpoint and fills in what is usual.
func baseURL(name, provider, given string) (*url.URL, error) {
	if given == "" {
		switch provider {
		case providerAnthropic:
			given = "https://api.anthropic.com"
		case providerOpenAI:
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
	case provider == providerOpenAI && u.Path == "":
		u.Path = "/v1"
	case provider != providerOpenAI:
		u.Path = strings.TrimSuffix(u.Path, "/v1") // the version belongs to the path of a request
	}
	u.Path += "/"
	return u, nil
}
