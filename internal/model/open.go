package model

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/tine-mcp/tine/internal/model/spec"
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
	// KeyEnv names the variable with the key. By default it is ANTHROPIC_API_KEY or
	// OPENAI_API_KEY at the provider's own endpoint, and none with a BaseURL, where those
	// keys don't belong. The program claude gets a key only if KeyEnv or Key is set.
	KeyEnv string
	// Environ returns a variable of the environment; nil is os.Getenv. The program
	// claude gets the variables that it needs by this, too.
	Environ func(name string) string
	// Client sends the requests; nil is one with the default transport. Redirects are
	// not followed. The program claude sends its requests itself.
	Client *http.Client
	// Prices are over [spec.DefaultPrices].
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

// Open returns a model by its name. Nothing is sent, and a missing key is an error of
// Ask.
//
// The part of the name before the first slash is the provider, if it is one of the
// three. An endpoint's own name may have such a part too: openai/openai/gpt-oss-120b.
func Open(name string, o Options) (Model, error) {
	provider, short, base, err := spec.Read(name, o.BaseURL)
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
	prices := spec.DefaultPrices().With(o.Prices)
	if p, ok := prices.Of(provider, short); ok {
		c.price = &p
	}
	ask := endpoint{base: base, model: short, client: withoutRedirects(o.Client), max: o.MaxReply}
	switch provider {
	case spec.Anthropic:
		c.keys.usual(o, "ANTHROPIC_API_KEY")
		c.provider = &messagesAPI{ask}
	case spec.OpenAI:
		c.keys.usual(o, "OPENAI_API_KEY")
		c.provider = &chatAPI{ask}
	case spec.Claude:
		c.keys.login = true
		c.slots = make(chan struct{}, maxPrograms)
		c.provider = newProgram(o, base, short, prices)
	}
	return c, nil
}
