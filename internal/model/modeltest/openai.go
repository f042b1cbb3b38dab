package modeltest

import (
	"encoding/json"
	"io"
)

func (r *Reply) chatStop() string {
	switch {
	case r.Stop == "length":
		return "length"
	case r.Stop == "refusal":
		return "content_filter"
	case r.Stop == "tools", r.Stop == "" && len(r.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func (u Usage) chat() object {
	prompt := u.Input + u.CacheRead + u.CacheWrite
	return object{"prompt_tokens": prompt, "completion_tokens": u.Output, "total_tokens": prompt + u.Output,
		"prompt_tokens_details": object{"cached_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite}}
}

func (c Call) chat(arguments string) object {
	call := object{"function": object{"name": c.Name, "arguments": arguments}}
	if c.ID != "" {
		call["id"], call["type"] = c.ID, "function"
	}
	if c.Extra != "" {
		call["extra_content"] = json.RawMessage(c.Extra)
	}
	return call
}

func (e *exchange) wholeChat() object {
	message := object{"role": "assistant", "content": e.reply.Text, "refusal": nil}
	var calls list
	for _, c := range e.reply.Calls {
		calls = append(calls, c.chat(c.Arguments))
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	all := object{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": e.model,
		"choices": list{object{"index": 0, "message": message, "finish_reason": e.reply.chatStop()}}}
	if !e.reply.Usage.None {
		all["usage"] = e.reply.Usage.chat()
	}
	return all
}

// streamChat sends the chunks of OpenAI's format.
func (e *exchange) streamChat(usage bool) {
	e.w.Header().Set("Content-Type", "text/event-stream")
	chunk := func(delta object, reason any) bool {
		return e.event("", object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": e.model,
			"choices": list{object{"index": 0, "delta": delta, "finish_reason": reason}}})
	}
	chunk(object{"role": "assistant", "content": ""}, nil)
	if !e.pieces(func(text string) bool { return chunk(object{"content": text}, nil) }) {
		return
	}
	for i, c := range e.reply.Calls {
		half := len(c.Arguments) / 2
		first := c.chat(c.Arguments[:half])
		first["index"] = i
		chunk(object{"tool_calls": list{first}}, nil)
		chunk(object{"tool_calls": list{object{"index": i, "function": object{"arguments": c.Arguments[half:]}}}}, nil)
	}
	chunk(object{}, e.reply.chatStop())
	if usage && !e.reply.Usage.None {
		e.event("", object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": e.model,
			"choices": list{}, "usage": e.reply.Usage.chat()})
	}
	io.WriteString(e.w, "data: [DONE]\n\n")
}
