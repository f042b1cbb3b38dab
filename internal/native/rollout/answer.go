package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// relayed is a server's own result, raw.
type relayed []byte

// answer gives an object as JSON text, which is what clients of old read, and as
// structured content.
func answer(v any) (*mcp.CallToolResult, error) {
	if raw, ok := v.(relayed); ok {
		// A tool's own isError stays inside, where RewardKit's server had it: its
		// clients take one outside for a failure of the world.
		return &mcp.CallToolResult{
			Content:           []mcp.Content{&mcp.TextContent{Text: string(raw)}},
			StructuredContent: json.RawMessage(raw),
		}, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a URL stays one
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(text)}},
		StructuredContent: json.RawMessage(text),
	}, nil
}

// failure says what went wrong and whose failure it is, in the same place as for
// every other call. It has no structured content: clients hold that against the
// output schema, errors or not.
func failure(err error) (*mcp.CallToolResult, error) {
	e := &api.Error{Kind: api.KindInfrastructure, Message: err.Error()}
	errors.As(err, &e)
	return &mcp.CallToolResult{
		IsError: true,
		Meta:    mcp.Meta{wire.MetaTineError: e},
		Content: []mcp.Content{&mcp.TextContent{Text: e.Message}},
	}, nil
}

// invalid is the error of a call that is wrong.
func invalid(format string, args ...any) error {
	return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf(format, args...)}
}

// inside says where in the arguments an error is.
func inside(err error, where string) error {
	var e *api.Error
	if !errors.As(err, &e) {
		return err
	}
	there := *e
	there.Message = where + ": " + e.Message
	return &there
}

// maxShown is how much is repeated of what a caller wrote.
const maxShown = 64

// quote shows a text that a caller wrote, as far as that helps.
func quote(s string) string {
	if len(s) > maxShown {
		return strconv.Quote(strings.ToValidUTF8(s[:maxShown], "")) + "..."
	}
	return strconv.Quote(s)
}

// shown is the same for any value.
func shown(raw json.RawMessage) string {
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return quote(text)
	case len(raw) > maxShown:
		return strings.ToValidUTF8(string(raw[:maxShown]), "") + "..."
	}
	return string(raw)
}
