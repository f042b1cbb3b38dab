package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A Result is the result of a tool.
type Result struct {
	// Raw is the result as JSON, as the server sent it. It is what a served node
	// answers with: to change a result, return another one.
	Raw json.RawMessage

	// decoded is what Raw was decoded to already, as long as Raw is that of it.
	decoded *mcp.CallToolResult
	of      *byte
}

// NewResult makes a Result of one of the SDK's. It fails if r can't be written as
// JSON.
func NewResult(r *mcp.CallToolResult) (*Result, error) {
	if r.Content == nil && !r.NeedsInput() {
		c := *r
		c.Content = []mcp.Content{}
		r = &c
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return &Result{Raw: raw}, nil
}

func received(raw json.RawMessage, r *mcp.CallToolResult) (*Result, error) {
	if len(raw) == 0 {
		return NewResult(r)
	}
	return &Result{Raw: raw, decoded: r, of: &raw[0]}, nil
}

// sendable says what keeps the result from being sent. The SDK does not answer at all with
// what is not JSON.
func (r *Result) sendable() error {
	switch {
	case r == nil || len(bytes.TrimSpace(r.Raw)) == 0:
		return errNoResult
	case len(r.Raw) > 0 && r.of == &r.Raw[0]: // it was received so
	case bytes.TrimSpace(r.Raw)[0] != '{' || !json.Valid(r.Raw):
		return errNoObjectResult
	}
	if tooLong(r.Raw) {
		return errLongResult
	}
	return nil
}

// MCP decodes the result. Changing what it returns does not change the result.
func (r *Result) MCP() (*mcp.CallToolResult, error) {
	d, err := r.decode()
	if err != nil {
		return nil, err
	}
	c := *d
	return &c, nil
}

// decode decodes the result, which the caller does not change.
func (r *Result) decode() (*mcp.CallToolResult, error) {
	if len(r.Raw) > 0 && r.of == &r.Raw[0] {
		return r.decoded, nil
	}
	out := new(mcp.CallToolResult)
	if err := json.Unmarshal(r.Raw, out); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return out, nil
}

// Text is the text of the result: its text contents, a line each. It is empty if
// there is none, or Raw is not a result.
func (r *Result) Text() string {
	d, err := r.decode()
	if err != nil {
		return ""
	}
	return strings.Join(texts(d), "\n")
}

func texts(r *mcp.CallToolResult) (all []string) {
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return all
}

// Err is nil unless the tool said that it failed. Then it is an [ErrTool] with the
// tool's text.
func (r *Result) Err() error {
	said, failed, err := r.failed()
	if err == nil && failed {
		err = fmt.Errorf("%w: %w", ErrTool, said)
	}
	return err
}

// failed is what a tool that failed said.
func (r *Result) failed() (said toolError, failed bool, _ error) {
	d, err := r.decode()
	if err != nil || !d.IsError {
		return "", false, err
	}
	text := strings.Join(texts(d), "\n")
	if text == "" {
		text = "no reason given"
	}
	return toolError(text), true, nil
}
