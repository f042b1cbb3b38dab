package modeltest

import "encoding/json"

func (r *Reply) claudeStop() string {
	switch {
	case r.Stop == "length":
		return "max_tokens"
	case r.Stop == "refusal":
		return "refusal"
	case r.Stop == "tools", r.Stop == "" && len(r.Calls) > 0:
		return "tool_use"
	}
	return "end_turn"
}

func (u Usage) claude() object {
	if u.None {
		return object{}
	}
	return object{"input_tokens": u.Input, "output_tokens": u.Output,
		"cache_read_input_tokens": u.CacheRead, "cache_creation_input_tokens": u.CacheWrite}
}

func (e *exchange) wholeMessage() object {
	var content list
	if e.reply.Thinking != "" {
		content = append(content, object{"type": "thinking", "thinking": e.reply.Thinking, "signature": "signed"})
	}
	if e.reply.Text != "" {
		content = append(content, object{"type": "text", "text": e.reply.Text})
	}
	for _, c := range e.reply.Calls {
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(c.Arguments)})
	}
	return object{"id": e.id, "type": "message", "role": "assistant", "model": e.model, "content": content,
		"stop_reason": e.reply.claudeStop(), "stop_sequence": nil, "usage": e.reply.Usage.claude()}
}

// streamMessage sends the events of Anthropic's format.
func (e *exchange) streamMessage() {
	e.w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind string, fields object) bool {
		fields["type"] = kind
		return e.event(kind, fields)
	}
	start := e.reply.Usage.claude()
	if !e.reply.Usage.None {
		start["output_tokens"] = 1
	}
	send("message_start", object{"message": object{
		"id": e.id, "type": "message", "role": "assistant", "model": e.model, "content": list{},
		"stop_reason": nil, "stop_sequence": nil, "usage": start,
	}})
	index := 0
	block := func(content object, deltas func(delta func(object) bool) bool) bool {
		send("content_block_start", object{"index": index, "content_block": content})
		if !deltas(func(d object) bool { return send("content_block_delta", object{"index": index, "delta": d}) }) {
			return false
		}
		send("content_block_stop", object{"index": index})
		index++
		return true
	}
	if e.reply.Thinking != "" {
		block(object{"type": "thinking", "thinking": "", "signature": ""}, func(delta func(object) bool) bool {
			return delta(object{"type": "thinking_delta", "thinking": e.reply.Thinking}) &&
				delta(object{"type": "signature_delta", "signature": "signed"})
		})
	}
	send("ping", object{})
	if e.reply.Text != "" || e.reply.Huge > 0 || e.reply.Hang || e.reply.Cut || e.reply.Fault != "" {
		if !block(object{"type": "text", "text": ""}, func(delta func(object) bool) bool {
			return e.pieces(func(text string) bool { return delta(object{"type": "text_delta", "text": text}) })
		}) {
			return
		}
	}
	for _, c := range e.reply.Calls {
		half := len(c.Arguments) / 2
		block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}, func(delta func(object) bool) bool {
			return delta(object{"type": "input_json_delta", "partial_json": ""}) &&
				delta(object{"type": "input_json_delta", "partial_json": c.Arguments[:half]}) &&
				delta(object{"type": "input_json_delta", "partial_json": c.Arguments[half:]})
		})
	}
	end := object{}
	if !e.reply.Usage.None {
		end["output_tokens"] = e.reply.Usage.Output
	}
	send("message_delta", object{"delta": object{"stop_reason": e.reply.claudeStop(), "stop_sequence": nil}, "usage": end})
	send("message_stop", object{})
}
