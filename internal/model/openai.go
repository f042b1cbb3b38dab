package model

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/respjson"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// chatAPI is OpenAI's Chat Completions, at OpenAI or at a compatible endpoint.
type chatAPI struct {
	endpoint
	service openai.ChatCompletionService
}

func newOpenAI(e endpoint) *chatAPI {
	c := &chatAPI{endpoint: e}
	// Unlike the SDK's client, the service reads nothing from the environment.
	c.service = openai.NewChatCompletionService(
		option.WithBaseURL(e.base.String()), option.WithHTTPClient(e.httpClient()), option.WithMaxRetries(0),
		option.WithMiddleware(c.exchange))
	return c
}

func (c *chatAPI) host() string    { return c.base.Host }
func (c *chatAPI) maxTokens() int  { return 0 }
func (c *chatAPI) tellsCost() bool { return false }

func (c *chatAPI) send(ctx context.Context, a *attempt) (Reply, error) {
	params := c.chatParams(a)
	var opts []option.RequestOption
	if a.key != "" {
		opts = append(opts, option.WithAPIKey(a.key))
	}
	var (
		got chatMessage
		err error
	)
	if a.delta == nil {
		var whole *openai.ChatCompletion
		if whole, err = c.service.New(ctx, params, opts...); err == nil {
			err = got.whole(whole)
		}
	} else {
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		stream := c.service.NewStreaming(ctx, params, opts...)
		err = got.read(stream, a.delta)
		stream.Close()
	}
	reply := Reply{Model: got.model, Usage: usageOfChat(got.usage)}
	if err != nil {
		return reply, chatProblem(err)
	}
	reply.Message, reply.Stop = got.message(c.model)
	return reply, nil
}

// A chatMessage is a message as it arrived, whole or in pieces.
type chatMessage struct {
	model   string
	text    strings.Builder
	refusal strings.Builder
	calls   []*chatCall
	at      map[int64]int // the place of a call by its index in the stream
	reason  string
	usage   openai.CompletionUsage
}

type chatCall struct {
	id, name  string
	arguments strings.Builder
	extra     string // JSON that some endpoints want back with the call
}

func (g *chatMessage) whole(c *openai.ChatCompletion) error {
	if c == nil {
		return errStrange
	}
	g.model, g.usage = c.Model, c.Usage
	if len(c.Choices) == 0 {
		return errStrange
	}
	choice := c.Choices[0]
	g.reason = choice.FinishReason
	g.text.WriteString(choice.Message.Content)
	g.refusal.WriteString(choice.Message.Refusal)
	for i, t := range choice.Message.ToolCalls {
		var extra string
		var fields struct {
			Extra json.RawMessage `json:"extra_content"`
		}
		if json.Unmarshal([]byte(t.RawJSON()), &fields) == nil {
			extra = string(fields.Extra)
		}
		g.call(int64(i), t.ID, t.Function.Name, t.Function.Arguments, extra)
	}
	return nil
}

// read puts the chunks of a stream together. The SDK's own way refuses streams whose
// chunks have different ids, which some compatible endpoints send.
func (g *chatMessage) read(stream *ssestream.Stream[openai.ChatCompletionChunk], delta func(string)) error {
	for stream.Next() {
		chunk := stream.Current()
		if chunk.Model != "" {
			g.model = chunk.Model
		}
		if chunk.JSON.Usage.Valid() {
			g.usage = chunk.Usage
		}
		if len(chunk.Choices) == 0 {
			continue
		}
		choice := chunk.Choices[0]
		if choice.FinishReason != "" {
			g.reason = choice.FinishReason
		}
		g.refusal.WriteString(choice.Delta.Refusal)
		for _, t := range choice.Delta.ToolCalls {
			g.call(t.Index, t.ID, t.Function.Name, t.Function.Arguments, valid(t.JSON.ExtraFields["extra_content"]))
			if len(g.calls) > maxCalls {
				return nil // the caller says so
			}
		}
		if text := choice.Delta.Content; text != "" {
			g.text.WriteString(text)
			delta(text)
		}
	}
	switch err := stream.Err(); {
	case err != nil:
		return err
	case g.reason == "":
		return errCut
	}
	return nil
}

// call adds a piece of a tool call. Pieces of one call have the same index. Some
// endpoints number all calls zero, so another id begins another call.
func (g *chatMessage) call(index int64, id, name, arguments, extra string) {
	at, known := g.at[index]
	if !known || id != "" && g.calls[at].id != "" && id != g.calls[at].id {
		if g.at == nil {
			g.at = map[int64]int{}
		}
		at = len(g.calls)
		g.at[index] = at
		g.calls = append(g.calls, &chatCall{})
	}
	c := g.calls[at]
	c.id = cmp.Or(c.id, id)
	c.name = cmp.Or(c.name, name)
	c.arguments.WriteString(arguments)
	c.extra = cmp.Or(extra, c.extra)
}

func valid(f respjson.Field) string {
	if raw := f.Raw(); json.Valid([]byte(raw)) {
		return raw
	}
	return ""
}

// message returns the message as callers know it, and why it ended.
func (g *chatMessage) message(model string) (Message, string) {
	m := Message{Role: RoleAssistant, Text: g.text.String()}
	raw := rawChat{Model: model, Extra: map[string]json.RawMessage{}}
	for i, c := range g.calls {
		arguments := object(c.arguments.String())
		if g.reason == "length" && i == len(g.calls)-1 && !isObject(arguments) {
			break // it was cut off
		}
		m.Calls = append(m.Calls, Call{ID: c.id, Name: c.name, Arguments: arguments})
		if c.extra != "" {
			raw.Extra[c.id] = json.RawMessage(c.extra)
		}
	}
	if len(raw.Extra) > 0 {
		m.Raw, _ = json.Marshal(raw) // it is JSON already
	}
	switch {
	case g.refusal.Len() > 0:
		if m.Text == "" {
			m.Text = g.refusal.String()
		}
		return m, StopRefusal
	case g.reason == "content_filter":
		return m, StopRefusal
	case g.reason == "length":
		return m, StopLength
	case len(m.Calls) > 0:
		return m, StopTools // whatever the endpoint calls it
	}
	return m, StopEnd
}

// usageOfChat takes what came from the cache out of the prompt, which counts it too.
func usageOfChat(u openai.CompletionUsage) Usage {
	read, write := u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens
	return Usage{
		InputTokens: max(u.PromptTokens-read-write, 0), OutputTokens: u.CompletionTokens,
		CacheRead: read, CacheWrite: write,
	}
}

// chatProblem makes an answer of an error that came within a stream, after the status.
func chatProblem(err error) error {
	var (
		e      *ssestream.StreamError
		syntax *json.SyntaxError
	)
	switch {
	case errors.As(err, &e):
		p := readProblem(e.Event.Data)
		a := &answered{status: 500, problem: p}
		switch {
		case strings.Contains(p.Type+p.Code, "rate_limit"), p.Code == "429":
			a.status = 429
		case strings.Contains(p.Type+p.Code, "invalid"), p.Code == "400":
			a.status = 400
		}
		return a
	case errors.As(err, &syntax), strings.Contains(err.Error(), "content-type"):
		return errStrange
	}
	return err
}
