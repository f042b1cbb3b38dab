package model

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/internal/wire"
)

// messagesAPI is Anthropic's Messages API. Replies are always streamed: a long one
// would otherwise keep a silent connection open for minutes, which proxies close.
type messagesAPI struct{ endpoint }

func (m *messagesAPI) host() string    { return m.base.Host }
func (m *messagesAPI) maxTokens() int  { return DefaultMaxTokens }
func (m *messagesAPI) tellsCost() bool { return false }

func (m *messagesAPI) send(ctx context.Context, a *attempt) (Reply, error) {
	header := http.Header{}
	header.Set("Anthropic-Version", "2023-06-01")
	if a.key != "" {
		header.Set("X-Api-Key", a.key)
	}
	var got claudeMessage
	err := m.stream(ctx, "v1/messages", header, messageParams(m.model, a), func(e wire.Event) (bool, error) {
		return got.read(e, a.delta)
	})
	if err == nil && !got.complete {
		err = errCut
	}
	reply := Reply{Model: got.model, Usage: got.usage}
	if err != nil {
		return reply, err
	}
	reply.Message = got.message(m.model)
	reply.Stop = stopOfClaude(got.reason)
	return reply, nil
}

// A claudeEvent is any event of a stream, as far as it matters.
type claudeEvent struct {
	Type    looseText `json:"type"`
	Index   looseInt  `json:"index"`
	Message struct {
		Model   looseText         `json:"model"`
		Content []json.RawMessage `json:"content"`
		Reason  looseText         `json:"stop_reason"`
		Usage   claudeUsage       `json:"usage"`
	} `json:"message"`
	Block json.RawMessage `json:"content_block"`
	Delta claudeDelta     `json:"delta"`
	Usage claudeUsage     `json:"usage"`
}

type claudeDelta struct {
	Type      looseText       `json:"type"`
	Text      looseText       `json:"text"`
	Thinking  looseText       `json:"thinking"`
	Signature looseText       `json:"signature"`
	Input     looseText       `json:"partial_json"`
	Citation  json.RawMessage `json:"citation"`
	Reason    looseText       `json:"stop_reason"` // of the whole message
}

// claudeUsage is in the first event and in one of the last, with the numbers so far. An
// event may leave some of them to the one before.
type claudeUsage struct {
	Input      *looseInt `json:"input_tokens"`
	Output     *looseInt `json:"output_tokens"`
	CacheRead  *looseInt `json:"cache_read_input_tokens"`
	CacheWrite *looseInt `json:"cache_creation_input_tokens"`
}

func (u *claudeUsage) update(all *Usage) {
	for _, n := range []struct {
		from *looseInt
		to   *int64
	}{{u.Input, &all.InputTokens}, {u.Output, &all.OutputTokens}, {u.CacheRead, &all.CacheRead}, {u.CacheWrite, &all.CacheWrite}} {
		if n.from != nil && *n.from >= 0 {
			*n.to = int64(*n.from)
		}
	}
}

// A claudeMessage is a message as it arrives.
type claudeMessage struct {
	model    string
	blocks   []*claudeBlock
	reason   string
	usage    Usage
	complete bool
}

// read adds an event. It reports whether another one is expected.
func (g *claudeMessage) read(event wire.Event, delta func(string)) (bool, error) {
	switch event.Name {
	case "", "ping":
		return true, nil
	case "error":
		return false, claudeProblem(event.Data)
	}
	var e claudeEvent
	if err := decode(event.Data, &e); err != nil {
		return false, err
	}
	switch e.Type {
	case "message_start":
		*g = claudeMessage{model: string(e.Message.Model), reason: string(e.Message.Reason)}
		e.Message.Usage.update(&g.usage)
		for _, raw := range e.Message.Content {
			if err := g.begin(raw); err != nil {
				return false, err
			}
		}
	case "message_delta":
		g.reason = cmp.Or(string(e.Delta.Reason), g.reason)
		e.Usage.update(&g.usage)
	case "content_block_start":
		if e.Index != looseInt(len(g.blocks)) {
			return false, errStrange
		}
		return true, g.begin(e.Block)
	case "content_block_delta", "content_block_stop":
		if e.Index < 0 || e.Index >= looseInt(len(g.blocks)) {
			return false, errStrange
		}
		g.blocks[e.Index].add(&e.Delta)
		if delta != nil && e.Delta.Type == "text_delta" && e.Delta.Text != "" {
			delta(string(e.Delta.Text))
		}
	case "message_stop":
		g.complete = true
		return false, nil
	}
	return true, nil
}

// begin adds a block.
func (g *claudeMessage) begin(raw json.RawMessage) error {
	b := &claudeBlock{added: map[string]*strings.Builder{}}
	if json.Unmarshal(raw, &b.fields) != nil || b.fields == nil {
		return errStrange
	}
	g.blocks = append(g.blocks, b)
	return nil
}

// message returns the message as callers know it.
func (g *claudeMessage) message(model string) Message {
	m := Message{Role: RoleAssistant}
	var (
		said strings.Builder
		raw  = rawMessage{Model: model}
		more bool // blocks that only Anthropic understands
		cut  bool // one broke off at the limit of tokens
	)
	for _, b := range g.blocks {
		whole := b.finish()
		cut = cut || !whole
		switch b.string("type") {
		case "text":
			said.WriteString(b.string("text"))
		case "tool_use":
			if whole {
				m.Calls = append(m.Calls, Call{ID: b.string("id"), Name: b.string("name"), Arguments: object(string(present(b.fields["input"])))})
			}
		default:
			more = true
		}
		block, _ := json.Marshal(b.fields) // they are JSON already
		raw.Content = append(raw.Content, block)
	}
	m.Text = said.String()
	if more && !cut {
		m.Raw, _ = json.Marshal(raw)
	}
	return m
}

// A claudeBlock is a block of a message. It keeps the fields that nobody here knows.
type claudeBlock struct {
	fields    map[string]json.RawMessage  // as the block began
	added     map[string]*strings.Builder // to fields, by deltas
	citations []json.RawMessage
}

// add takes a delta. One of an unknown type is left out.
func (b *claudeBlock) add(d *claudeDelta) {
	switch d.Type {
	case "text_delta":
		b.append("text", d.Text)
	case "thinking_delta":
		b.append("thinking", d.Thinking)
	case "signature_delta":
		b.append("signature", d.Signature)
	case "input_json_delta":
		b.append("input", d.Input)
	case "citations_delta":
		if len(d.Citation) > 0 {
			b.citations = append(b.citations, d.Citation)
		}
	}
}

func (b *claudeBlock) append(field string, piece looseText) {
	if piece == "" {
		return
	}
	if b.added[field] == nil {
		b.added[field] = &strings.Builder{}
	}
	b.added[field].WriteString(string(piece))
}

// finish puts what deltas added into the fields. It reports false if the input broke
// off.
func (b *claudeBlock) finish() (whole bool) {
	whole = true
	for field, more := range b.added {
		if field == "input" { // the block begins with an empty object in its place
			if whole = json.Valid([]byte(more.String())); whole {
				b.fields[field] = json.RawMessage(more.String())
			}
			continue
		}
		b.fields[field], _ = json.Marshal(b.string(field) + more.String()) // a string always marshals
	}
	if len(b.citations) > 0 {
		var all []json.RawMessage
		json.Unmarshal(b.fields["citations"], &all) // a list, null or missing
		b.fields["citations"], _ = json.Marshal(append(all, b.citations...))
	}
	return whole
}

func (b *claudeBlock) string(field string) string {
	var t looseText
	json.Unmarshal(b.fields[field], &t) // it may be missing
	return string(t)
}

func stopOfClaude(reason string) string {
	switch reason {
	case "tool_use":
		return StopTools
	case "max_tokens", "model_context_window_exceeded":
		return StopLength
	case "refusal":
		return StopRefusal
	}
	return StopEnd
}

// claudeProblem makes an answer of an error that came within a stream, after the status.
func claudeProblem(data []byte) error {
	p := readProblem(data)
	return &answered{problem: p, status: cmp.Or(map[string]int{
		"invalid_request_error": 400,
		"authentication_error":  401,
		"billing_error":         402,
		"permission_error":      403,
		"not_found_error":       404,
		"rate_limit_error":      429,
		"timeout_error":         504,
		"overloaded_error":      529,
	}[p.Type], 500)}
}
