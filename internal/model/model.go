// Package model asks language models. Behind one interface there are
//
//	anthropic/NAME, claude-NAME   Anthropic's Messages API
//	openai/NAME                   OpenAI's Chat Completions
//	NAME with a base URL          any endpoint that is compatible with them
//	claude-code, claude-code/NAME the user's own program claude in print mode
//
// The providers make one attempt each. What is the same for all of them is around
// the attempt: the check of the request, the key, the budget, the limits of time
// and size, the pauses that an endpoint asks for, retries, prices and errors.
//
// All errors are sentences for a person, hold no key, and unwrap to an *api.Error:
//
//	refused         no or a wrong key, a rate limit, a budget, a cancelled call
//	invalid         the request is wrong
//	timeout         an attempt or the whole call took too long
//	infrastructure  the endpoint could not be reached, failed or was not understood
package model

import (
	"context"
	"encoding/json"
)

// A Model answers conversations. Its methods may run at once.
type Model interface {
	// Name is the name that the model was opened with.
	Name() string

	// Ask sends the conversation and returns the model's next message. If delta is not
	// nil, it gets the text piece by piece while it arrives, in the goroutine of the
	// caller. An attempt that fails before the first piece is repeated; after it, the
	// error is returned, as the pieces can't be taken back.
	//
	// A failed call returns what it is known to have used in Reply.Usage.
	Ask(ctx context.Context, r Request, delta func(text string)) (Reply, error)
}

// The roles of messages.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// A Request is a conversation whose next message is wanted.
type Request struct {
	System string
	// Messages begin and end with a message of the user.
	Messages []Message
	Tools    []Tool
	// MaxTokens limits the output. Zero leaves it to the provider, or to
	// DefaultMaxTokens where the provider wants a number.
	MaxTokens   int
	Temperature *float64
	Stop        []string
	// Budget pays for the call; nil is without limits.
	Budget *Budget
}

// A Message is one turn of a conversation. A message of the assistant has Text and
// Calls, one of the user has Results and Text.
type Message struct {
	Role    string   `json:"role"`
	Text    string   `json:"text,omitempty"`
	Calls   []Call   `json:"calls,omitempty"`
	Results []Result `json:"results,omitempty"`
	// Raw is what the provider wants back unchanged with the message, such as thinking
	// blocks and their signatures. Callers keep it and do not read it. It is ignored if
	// Text or Calls were changed, and by other models.
	Raw json.RawMessage `json:"raw,omitempty"`
}

// A Call is a tool call of the model.
type Call struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Arguments are a JSON object. If the model wrote something else, they are a JSON
	// string with what it wrote.
	Arguments json.RawMessage `json:"arguments"`
}

// A Result answers the call with the same ID.
type Result struct {
	ID      string `json:"id"`
	Text    string `json:"text"`
	IsError bool   `json:"is_error,omitempty"`
}

// A Tool is something that the model may call. Schema is the JSON Schema of its
// arguments, an object; empty for a tool without arguments.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// Why a model stopped.
const (
	StopEnd     = "end"     // it said all it wanted, or came to a stop sequence
	StopLength  = "length"  // MaxTokens, the budget or the context window ended it; a call that was cut off is left out
	StopTools   = "tools"   // it waits for the results of its calls
	StopRefusal = "refusal" // it or a filter declined to answer
)

// A Reply is what a model answered.
type Reply struct {
	Message Message
	Stop    string
	Usage   Usage
	Model   string // as the provider names it
}
