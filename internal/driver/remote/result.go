package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// lost says that an orchestrator does not know an instance any more.
func lost(e *entry, err error) error {
	return fmt.Errorf("server %q: the orchestrator has forgotten the instance %s: %w: %w", e.Access.Server, e.ID, err, driver.ErrLost)
}

// kindOf reads from an error of Tine's own whose failure it is; empty from others.
func kindOf(body []byte) api.Kind {
	switch k := api.Kind(wire.FindString(body, "kind")); k {
	case api.KindTool, api.KindInfrastructure, api.KindTimeout, api.KindRefused, api.KindInvalid, api.KindLost:
		return k
	}
	return ""
}

// kindIn is kindOf for the result of a tool, which has the error in its _meta.
func kindIn(result []byte) api.Kind {
	meta, err := wire.Find(result, "_meta")
	if err != nil || !meta.Ok() {
		return ""
	}
	at, err := wire.Find(meta.Of(result), wire.MetaTineError)
	if err != nil || !at.Ok() {
		return ""
	}
	return kindOf(at.Of(meta.Of(result)))
}

// readResult makes a tool's result of what an orchestrator answers to a call:
// one that is a result is passed on as it is, and any other JSON becomes its
// text and its structured content.
func readResult(body []byte) ([]byte, error) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 {
		return []byte(`{"content":[]}`), nil
	}
	if !json.Valid(body) {
		return nil, errors.New("which is not JSON")
	}
	if isResult(body) {
		return wire.OneLine(body), nil
	}
	text, plain := wire.Unquote(body)
	if !plain {
		text = string(body)
	}
	out := wire.AppendQuote([]byte(`{"content":[{"type":"text","text":`), text)
	out = append(out, `}],"structuredContent":`...)
	if body[0] == '{' {
		out = append(out, wire.OneLine(body)...)
	} else {
		out = append(append(append(out, `{"result":`...), wire.OneLine(body)...), '}')
	}
	return append(out, '}'), nil
}

// isResult reports whether an object is the result of a tool.
func isResult(b []byte) bool {
	at, err := wire.Find(b, "content")
	if err != nil || !at.Ok() {
		return false
	}
	return at.Of(b)[0] == '['
}
