package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/internal/wire"
)

// chatAPI is OpenAI's Chat Completions, at OpenAI or at a compatible endpoint.
type chatAPI struct{ endpoint }

func (c *chatAPI) host() string    { return c.base.Host }
func (c *chatAPI) maxTokens() int  { return 0 }
func (c *chatAPI) tellsCost() bool { return false }

func (c *chatAPI) send(ctx context.Context, a *attempt) (Reply, error) {
	const path = "chat/completions"
	header := http.Header{}
	if a.key != "" {
		header.Set("Authorization", "Bearer "+a.key)
	}
	var (
		got chatMessage
		err error
	)
	if a.delta == nil {
		var reply chatReply
		if err = c.whole(ctx, path, header, c.chatParams(a), &reply); err == nil {
			err = got.whole(&reply)
		}
	} else {
		err = c.stream(ctx, path, header, c.chatParams(a), func(e wire.Event) (bool, error) { return got.read(e, a.delta) })
		if err == nil && got.reason == "" && len(got.calls) <= maxCalls {
			err = errCut
		}
	}
	reply := Reply{Model: got.model, Usage: got.usage.known()}
	if err != nil {
		return reply, err
	}
	reply.Message, reply.Stop = got.message(c.model)
	return reply, nil
}

type (
	// A chatReply is a whole reply, or a chunk of a stream.
	chatReply struct {
		Model   looseText       `json:"model"`
		Choices []chatChoice    `json:"choices"`
		Usage   *chatUsage      `json:"usage"`
		Error   json.RawMessage `json:"error"`
	}
	chatChoice struct {
		Message chatPart  `json:"message"`
		Delta   chatPart  `json:"delta"` // in a chunk
		Reason  looseText `json:"finish_reason"`
	}
	chatPart struct {
		Content looseText `json:"content"`
		Refusal looseText `json:"refusal"`
		Calls   []struct {
			Index    looseInt  `json:"index"` // in a chunk
			ID       looseText `json:"id"`
			Function struct {
				Name      looseText `json:"name"`
				Arguments looseText `json:"arguments"`
			} `json:"function"`
			Extra json.RawMessage `json:"extra_content"`
		} `json:"tool_calls"`
	}
	chatUsage struct {
		Prompt     looseInt `json:"prompt_tokens"`
		Completion looseInt `json:"completion_tokens"`
		Details    struct {
			Read  looseInt `json:"cached_tokens"`
			Write looseInt `json:"cache_write_tokens"`
		} `json:"prompt_tokens_details"`
	}
)

// known takes what came from the cache out of the prompt, which counts it too.
func (u *chatUsage) known() Usage {
	if u == nil {
		return Usage{}
	}
	read, write := max(int64(u.Details.Read), 0), max(int64(u.Details.Write), 0)
	return Usage{
		InputTokens: max(int64(u.Prompt)-read-write, 0), OutputTokens: max(int64(u.Completion), 0),
		CacheRead: read, CacheWrite: write,
	}
}

// A chatMessage is a message as it arrived, whole or in pieces.
type chatMessage struct {
	model   string
	text    strings.Builder
	refusal strings.Builder
	calls   []*chatCall
	at      map[int64]int // the place of a call by its index in the stream
	reason  string
	usage   *chatUsage
}

type chatCall struct {
	id, name  string
	arguments strings.Builder
	extra     string // JSON that some endpoints want back with the call
}

func (g *chatMessage) whole(r *chatReply) error {
	g.model, g.usage = string(r.Model), r.Usage
	if len(r.Choices) == 0 {
		return errStrange
	}
	said := r.Choices[0].Message
	for i := range said.Calls {
		said.Calls[i].Index = looseInt(i)
	}
	g.add(&said, r.Choices[0].Reason)
	if g.reason == "" && g.text.Len() == 0 && g.refusal.Len() == 0 && len(g.calls) == 0 {
		return errStrange
	}
	return nil
}

// read adds a chunk of a stream. It reports whether another one is expected. Chunks may
// have different ids: some compatible endpoints send such.
func (g *chatMessage) read(event wire.Event, delta func(string)) (bool, error) {
	if bytes.HasPrefix(event.Data, []byte("[DONE]")) {
		return false, nil
	}
	var chunk chatReply
	err := decode(event.Data, &chunk)
	if event.Name == "error" || len(present(chunk.Error)) > 0 {
		return false, chatProblem(event.Data)
	}
	if err != nil {
		return false, err
	}
	g.model = cmp.Or(string(chunk.Model), g.model)
	g.usage = cmp.Or(chunk.Usage, g.usage)
	if len(chunk.Choices) == 0 {
		return true, nil
	}
	said := &chunk.Choices[0].Delta
	g.add(said, chunk.Choices[0].Reason)
	if len(g.calls) > maxCalls {
		return false, nil // the caller says so
	}
	if said.Content != "" {
		delta(string(said.Content))
	}
	return true, nil
}

func (g *chatMessage) add(said *chatPart, reason looseText) {
	g.reason = cmp.Or(string(reason), g.reason)
	g.text.WriteString(string(said.Content))
	g.refusal.WriteString(string(said.Refusal))
	for _, c := range said.Calls {
		g.call(int64(c.Index), string(c.ID), string(c.Function.Name), string(c.Function.Arguments), string(present(c.Extra)))
	}
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

// chatProblem makes an answer of an error that came within a stream, after the status.
func chatProblem(data []byte) error {
	p := readProblem(data)
	a := &answered{status: 500, problem: p}
	switch {
	case strings.Contains(p.Type+p.Code, "rate_limit"), p.Code == "429":
		a.status = 429
	case strings.Contains(p.Type+p.Code, "invalid"), p.Code == "400":
		a.status = 400
	}
	return a
}
