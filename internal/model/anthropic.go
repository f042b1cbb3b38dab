package model

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
)

// messagesAPI is Anthropic's Messages API. Replies are always streamed: a long one
// would otherwise keep a silent connection open for minutes, which proxies close.
type messagesAPI struct {
	endpoint
	service anthropic.MessageService
}

func newAnthropic(e endpoint) *messagesAPI {
	m := &messagesAPI{endpoint: e}
	// Unlike the SDK's client, the service reads nothing from the environment. Spans are
	// the gateway's business.
	m.service = anthropic.NewMessageService(
		option.WithBaseURL(e.base.String()), option.WithHTTPClient(e.httpClient()), option.WithMaxRetries(0),
		option.WithMiddleware(m.exchange), option.WithOpenTelemetryTraces(false))
	return m
}

func (m *messagesAPI) host() string    { return m.base.Host }
func (m *messagesAPI) maxTokens() int  { return DefaultMaxTokens }
func (m *messagesAPI) tellsCost() bool { return false }

func (m *messagesAPI) send(ctx context.Context, a *attempt) (Reply, error) {
	var opts []option.RequestOption
	if a.key != "" {
		opts = append(opts, option.WithAPIKey(a.key))
	}
	stream := m.service.NewStreaming(ctx, messageParams(m.model, a), opts...)
	defer stream.Close()
	got, err := readMessage(stream, a.delta)
	reply := Reply{Model: string(got.Model), Usage: Usage{
		InputTokens: got.Usage.InputTokens, OutputTokens: got.Usage.OutputTokens,
		CacheRead: got.Usage.CacheReadInputTokens, CacheWrite: got.Usage.CacheCreationInputTokens,
	}}
	if err != nil {
		return reply, streamProblem(err)
	}
	reply.Message = got.message(m.model)
	reply.Stop = stopOfClaude(string(got.StopReason))
	return reply, nil
}

// A claudeMessage is a message as it arrived.
type claudeMessage struct {
	anthropic.Message
	cut map[int64]bool // blocks whose arguments broke off at the limit of tokens
}

// readMessage puts the events of a stream together.
func readMessage(stream *ssestream.Stream[anthropic.MessageStreamEventUnion], delta func(string)) (*claudeMessage, error) {
	got := &claudeMessage{cut: map[int64]bool{}}
	complete := false
	for stream.Next() {
		event := stream.Current()
		switch event.Type {
		case "content_block_stop":
			// Accumulate replaces arguments that are no JSON by an empty object.
			if i := event.Index; i >= 0 && i < int64(len(got.Content)) {
				if in := got.Content[i].Input; len(in) > 0 && !json.Valid(in) {
					got.cut[i] = true
				}
			}
		case "message_stop":
			complete = true
		}
		if err := got.Accumulate(event); err != nil {
			return got, errStrange
		}
		if delta != nil && event.Type == "content_block_delta" && event.Delta.Type == "text_delta" && event.Delta.Text != "" {
			delta(event.Delta.Text)
		}
	}
	switch err := stream.Err(); {
	case err != nil:
		return got, err
	case !complete:
		return got, errCut
	}
	return got, nil
}

// message returns the message as callers know it.
func (g *claudeMessage) message(model string) Message {
	m := Message{Role: RoleAssistant}
	var (
		text strings.Builder
		raw  []json.RawMessage
		more bool // blocks that only Anthropic understands
	)
	for i := range g.Content {
		b := &g.Content[i]
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
		case "tool_use":
			if !g.cut[int64(i)] {
				m.Calls = append(m.Calls, Call{ID: b.ID, Name: b.Name, Arguments: object(string(b.Input))})
			}
		default:
			more = true
		}
		raw = append(raw, json.RawMessage(b.RawJSON()))
	}
	m.Text = text.String()
	if more && len(g.cut) == 0 {
		m.Raw, _ = json.Marshal(rawMessage{Model: model, Content: raw}) // it is JSON already
	}
	return m
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

// streamProblem makes an answer of an error that came within a stream, after the
// status.
func streamProblem(err error) error {
	var e *anthropic.Error
	if !errors.As(err, &e) {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return errStrange
		}
		return err
	}
	a := &answered{problem: readProblem([]byte(e.RawJSON()))}
	switch e.Type() {
	case anthropic.ErrorTypeInvalidRequestError:
		a.status = 400
	case anthropic.ErrorTypeAuthenticationError:
		a.status = 401
	case anthropic.ErrorTypeBillingError:
		a.status = 402
	case anthropic.ErrorTypePermissionError:
		a.status = 403
	case anthropic.ErrorTypeNotFoundError:
		a.status = 404
	case anthropic.ErrorTypeRateLimitError:
		a.status = 429
	case anthropic.ErrorTypeOverloadedError:
		a.status = 529
	case anthropic.ErrorTypeTimeoutError:
		a.status = 504
	default:
		a.status = 500
	}
	return a
}
