package model

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/tine-mcp/tine/internal/model/spec"
)

// A programRun is what a run has printed so far: lines of JSON.
type programRun struct {
	delta  func(string)
	asked  bool // for tool calls
	prices Prices

	model  string
	text   strings.Builder
	usage  programUsage // of the messages so far
	before int64        // their output without that of the last
	cut    bool         // a message came to the limit of tokens
	ended  bool
	result programResult
}

type programUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

// A programLine is any line, as far as it matters.
type programLine struct {
	Type    string `json:"type"`
	Error   string `json:"error"`
	Message struct {
		Model string `json:"model"`
	} `json:"message"`
	Event struct {
		Type  string       `json:"type"`
		Usage programUsage `json:"usage"`
		Delta struct {
			Type   string `json:"type"`
			Text   string `json:"text"`
			Reason string `json:"stop_reason"`
		} `json:"delta"`
		Message struct {
			Model string       `json:"model"`
			Usage programUsage `json:"usage"`
		} `json:"message"`
	} `json:"event"`
}

// A programResult is the last line.
type programResult struct {
	Subtype    string          `json:"subtype"`
	IsError    bool            `json:"is_error"`
	Result     string          `json:"result"`
	Structured json.RawMessage `json:"structured_output"`
	StopReason string          `json:"stop_reason"`
	Status     int             `json:"api_error_status"`
	Type       string          `json:"api_error_type"`
	Cost       *float64        `json:"total_cost_usd"`
	Usage      programUsage    `json:"usage"`
}

// read reads up to the result, or to the end of a message that came to the limit of
// tokens: the program would go on with another, and forget the first in the result.
func (r *programRun) read(out io.Reader) error {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		var large *errTooLarge
		switch {
		case r.ended || r.cut:
			return nil
		case errors.As(err, &large):
			return err
		case err != nil:
			return nil // how the program ended says more
		}
	}
}

// line reads one line. What is no JSON is a remark for people.
func (r *programRun) line(text []byte) {
	var line programLine
	if json.Unmarshal(text, &line) != nil {
		return
	}
	switch line.Type {
	case "stream_event":
		r.event(&line)
	case "assistant":
		if m := line.Message.Model; m != "" && m != "<synthetic>" {
			r.model = m
		}
		if line.Error == "authentication_failed" {
			r.result.Status = 401
		}
	case "result":
		status := r.result.Status
		r.ended = json.Unmarshal(text, &r.result) == nil
		if r.result.Status == 0 {
			r.result.Status = status
		}
	}
}

// event reads an event of a message that the program receives.
func (r *programRun) event(line *programLine) {
	switch e := &line.Event; e.Type {
	case "message_start":
		r.model = e.Message.Model
		r.before = r.usage.Output
		u := e.Message.Usage
		r.usage.Input += u.Input
		r.usage.CacheRead += u.CacheRead
		r.usage.CacheWrite += u.CacheWrite
	case "content_block_delta":
		// The fields of a form are no text for the caller.
		if e.Delta.Type != "text_delta" || e.Delta.Text == "" || r.asked {
			return
		}
		r.text.WriteString(e.Delta.Text)
		if r.delta != nil {
			r.delta(e.Delta.Text)
		}
	case "message_delta":
		r.usage.Output = r.before + e.Usage.Output
		r.cut = stopOfClaude(e.Delta.Reason) == StopLength
	}
}

// reply is what is known, without tool calls.
func (r *programRun) reply() Reply {
	reply := Reply{Model: r.model, Message: Message{Role: RoleAssistant}}
	if !r.ended {
		reply.Message.Text, reply.Stop = r.text.String(), StopLength
		reply.Usage = r.usage.known()
		if p, ok := r.prices.Of(spec.Anthropic, r.model); ok {
			reply.Usage.Cost = cost(p, reply.Usage)
		} else {
			reply.Usage.CostUnknown = true
		}
		return reply
	}
	reply.Message.Text, reply.Stop = r.result.Result, stopOfClaude(r.result.StopReason)
	reply.Usage = r.result.Usage.known()
	if r.result.Cost != nil {
		reply.Usage.Cost = *r.result.Cost
	} else {
		reply.Usage.CostUnknown = true
	}
	return reply
}

func (u programUsage) known() Usage {
	return Usage{InputTokens: u.Input, OutputTokens: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}
}

// problem is the error of a result that is one.
func (r *programRun) problem() error {
	switch {
	case r.result.Status >= 400:
		return &answered{status: r.result.Status, problem: problem{Type: r.result.Type, Message: r.result.Result}}
	case r.result.IsError || r.result.Subtype != "success":
		return &answered{status: 500, problem: problem{Message: strings.TrimSpace(r.result.Subtype + " " + r.result.Result)}}
	}
	return nil
}

// finish is the reply of a run that succeeded, with the tool calls of the form.
func (r *programRun) finish() (Reply, error) {
	reply := r.reply()
	if !r.asked || r.cut {
		return reply, nil
	}
	m, err := filledForm(r.result.Structured)
	if err != nil {
		return Reply{Usage: reply.Usage}, err
	}
	reply.Message, reply.Stop = m, StopEnd
	if len(m.Calls) > 0 {
		reply.Stop = StopTools
	}
	if m.Text != "" && r.delta != nil {
		r.delta(m.Text)
	}
	return reply, nil
}
