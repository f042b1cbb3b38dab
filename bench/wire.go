package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The two protocol eras that are measured, by their revision.
const (
	legacyEra    = "2025-11-25" // handshake, then a session
	statelessEra = "2026-07-28" // every request stands alone
)

// minPayload leaves room for the part of the text that makes it unique.
const minPayload = 20

const initializeBody = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + legacyEra +
	`","capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}`

const initializedBody = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + statelessEra +
	`","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}},`

// script writes calls and checks their answers. All but the id and the unique
// head of the text is prepared.
type script struct {
	middle, tail string // around the text's unique head
	head         func(b []byte, id uint64) []byte
	right        func(id uint64, text string) bool // whether it is the answer's text
}

func newScript(era, tool string, payload int) *script {
	padding := strings.Repeat("the quick brown fox ", payload/20+1)[:payload-minPayload]
	return &script{
		middle: callMiddle(era, tool, "text"), tail: padding + `"}}}`, head: appendHead,
		right: func(id uint64, text string) bool {
			return len(text) >= minPayload && text[:minPayload] == string(appendHead(nil, id)) && text[minPayload:] == padding
		},
	}
}

// execScript has a kernel work out a sum.
func execScript(era, tool string) *script {
	return &script{
		middle: callMiddle(era, tool, "code"), tail: sumTail + `"}}}`,
		head:  func(b []byte, id uint64) []byte { return strconv.AppendUint(b, id, 10) },
		right: func(id uint64, text string) bool { return text == sumOf(id) },
	}
}

// The sum that kernels are asked for: its code, after a number, and the answer.
const sumTail = " + 1"

func sumOf(id uint64) string { return strconv.FormatUint(id+1, 10) }

// callMiddle is a call from its id to the beginning of its one argument.
func callMiddle(era, tool, argument string) string {
	meta := ""
	if era == statelessEra {
		meta = statelessMeta
	}
	return `,"method":"tools/call","params":{` + meta + `"name":"` + tool + `","arguments":{"` + argument + `":"`
}

// call renders the call with this id. No two ids give the same text.
func (s *script) call(id uint64) []byte {
	b := make([]byte, 0, 64+len(s.middle)+len(s.tail))
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendUint(b, id, 10)
	b = append(b, s.middle...)
	b = s.head(b, id)
	return append(b, s.tail...)
}

// appendHead appends the minPayload bytes that are unique to a call.
func appendHead(b []byte, id uint64) []byte {
	return fmt.Appendf(b, "%0*d ", minPayload-1, id)
}

// answer is as much of a response as is checked.
type answer struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Error  json.RawMessage `json:"error"`
	Result *struct {
		IsError bool `json:"isError"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
}

var errNoAnswer = errors.New("the reply holds no answer")

// check says whether message is the right answer to the call with this id.
// Messages that are no answers at all, such as notifications, give errNoAnswer.
func (s *script) check(id uint64, message []byte) error {
	var a answer
	if err := json.Unmarshal(message, &a); err != nil {
		return fmt.Errorf("the answer is not JSON: %w: %.200s", err, message)
	}
	if a.Method != "" {
		return errNoAnswer
	}
	if got := string(a.ID); got != strconv.FormatUint(id, 10) {
		return fmt.Errorf("call %d was answered with id %s", id, got)
	}
	if a.Error != nil {
		return fmt.Errorf("call %d failed: %.300s", id, a.Error)
	}
	if a.Result == nil || a.Result.IsError || len(a.Result.Content) != 1 || a.Result.Content[0].Type != "text" {
		return fmt.Errorf("call %d was not answered with one text: %.300s", id, message)
	}
	if text := a.Result.Content[0].Text; !s.right(id, text) {
		return fmt.Errorf("call %d got another text back: %.100q", id, text)
	}
	return nil
}

// checkStream is check for an event stream: among its messages there must be
// the answer to this call and no other answer.
func (s *script) checkStream(id uint64, stream []byte) error {
	answered := false
	var data []byte
	dispatch := func() error {
		if len(data) == 0 {
			return nil
		}
		err := s.check(id, data)
		data = data[:0]
		switch {
		case errors.Is(err, errNoAnswer):
			return nil
		case err != nil:
			return err
		case answered:
			return fmt.Errorf("call %d was answered twice", id)
		}
		answered = true
		return nil
	}
	for len(stream) > 0 {
		var line []byte
		line, stream, _ = bytes.Cut(stream, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			if err := dispatch(); err != nil {
				return err
			}
			continue
		}
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(rest, []byte(" "))...)
		}
	}
	// An event that no empty line ended is not dispatched: it may be torn.
	if !answered {
		return fmt.Errorf("call %d: %w", id, errNoAnswer)
	}
	return nil
}
