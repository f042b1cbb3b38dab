//lint:file-ignore SA1019 The suite asks for sampling and roots, which the newest revision deprecates.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// Tools that ask the client for something: in the handshake era over the session,
// in the stateless one with a result that says what is missing.
var asking = []node.Source{
	node.Func("test_sampling", "Asks the client's model.", func(ctx context.Context, in struct {
		Prompt string `json:"prompt"`
	}) (string, error) {
		r, err := node.Request(ctx).Session.CreateMessage(ctx, sampling(in.Prompt))
		if err != nil {
			return "", err
		}
		return "LLM response: " + said(r.Content), nil
	}),
	node.Func("test_elicitation", "Asks the user.", func(ctx context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return elicit(ctx, in.Message, `{"type":"object","properties":{"username":{"type":"string"}},"required":["username"]}`)
	}),
	node.Func("test_elicitation_sep1034_defaults", "Asks the user, with defaults.", func(ctx context.Context, _ struct{}) (string, error) {
		return elicit(ctx, "defaults", `{"type":"object","properties":{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},
			"score":{"type":"number","default":95.5},"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},
			"verified":{"type":"boolean","default":true}}}`)
	}),
	node.Func("test_elicitation_sep1330_enums", "Asks the user, with enums.", func(ctx context.Context, _ struct{}) (string, error) {
		titled := `[{"const":"value1","title":"First"},{"const":"value2","title":"Second"},{"const":"value3","title":"Third"}]`
		return elicit(ctx, "enums", `{"type":"object","properties":{"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
			"titledSingle":{"type":"string","oneOf":`+titled+`},
			"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["One","Two","Three"]},
			"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
			"titledMulti":{"type":"array","items":{"type":"string","anyOf":`+titled+`}}}}`)
	}),
	tool("test_input_required_result_elicitation", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if name := accepted(req, "user_name")["name"]; name != nil {
			return done("Hello, %v!", name)
		}
		return needs("", "user_name", form("name")), nil
	}),
	tool("test_input_required_result_sampling", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if s := sampled(req, "capital_question"); s != "" {
			return done("Sampling response: %s", s)
		}
		return needs("", "capital_question", sampling("What is the capital of France?")), nil
	}),
	tool("test_input_required_result_list_roots", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if n := roots(req); n > 0 {
			return done("%d roots", n)
		}
		return needs("", "client_roots", &mcp.ListRootsParams{}), nil
	}),
	tool("test_input_required_result_request_state", confirmed),
	tool("test_input_required_result_tampered_state", confirmed),
	tool("test_input_required_result_multiple_inputs", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		name, greeting, n := accepted(req, "user_name")["name"], sampled(req, "greeting"), roots(req)
		if name != nil && greeting != "" && n > 0 {
			return done("%s %v, %d roots", greeting, name, n)
		}
		r := needs("multiple_inputs", "user_name", form("name"))
		r.InputRequests["greeting"] = sampling("Generate a greeting")
		r.InputRequests["client_roots"] = &mcp.ListRootsParams{}
		return r, nil
	}),
	tool("test_input_required_result_multi_round", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		name, second := strings.CutPrefix(req.Params.RequestState, "2 ")
		switch {
		case second:
			return done("%s likes %v", name, accepted(req, "step2")["color"])
		case req.Params.RequestState == "1":
			return needs(fmt.Sprint("2 ", accepted(req, "step1")["name"]), "step2", form("color")), nil
		}
		return needs("1", "step1", form("name")), nil
	}),
	tool("test_input_required_result_capabilities", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ask := mcp.InputRequestMap{}
		if caps := req.ClientCapabilities(); caps != nil {
			if caps.Elicitation != nil {
				ask["user_name"] = form("name")
			}
			if caps.Sampling != nil {
				ask["greeting"] = sampling("Generate a short greeting")
			}
		}
		if len(req.Params.InputResponses) > 0 || len(ask) == 0 {
			return done("nothing is missing")
		}
		return &mcp.CallToolResult{InputRequests: ask}, nil
	}),
}

// confirmed asks for a confirmation, and finds out if its state was changed.
func confirmed(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	const state = "waits for the confirmation"
	switch {
	case req.Params.RequestState != "" && req.Params.RequestState != state:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the request state was changed"}
	case req.Params.RequestState != "" && accepted(req, "confirm") != nil:
		return done("state-ok")
	}
	return needs(state, "confirm", &mcp.ElicitParams{
		Message: "Please confirm", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}`),
	}), nil
}

func elicit(ctx context.Context, message, schema string) (string, error) {
	r, err := node.Request(ctx).Session.Elicit(ctx, &mcp.ElicitParams{Message: message, RequestedSchema: json.RawMessage(schema)})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("action=%s, content=%v", r.Action, r.Content), nil
}

func done(format string, args ...any) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{text(fmt.Sprintf(format, args...))}}, nil
}

func needs(state, key string, ask mcp.InputRequest) *mcp.CallToolResult {
	return &mcp.CallToolResult{RequestState: state, InputRequests: mcp.InputRequestMap{key: ask}}
}

func form(property string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: "What is your " + property + "?", RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"` + property + `":{"type":"string"}},"required":["` + property + `"]}`)}
}

func sampling(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{MaxTokens: 100, Messages: []*mcp.SamplingMessage{{Role: "user", Content: text(prompt)}}}
}

func accepted(req *mcp.CallToolRequest, key string) map[string]any {
	if r, ok := req.Params.InputResponses[key].(*mcp.ElicitResult); ok && r.Action == "accept" {
		return r.Content
	}
	return nil
}

func sampled(req *mcp.CallToolRequest, key string) string {
	if r, ok := req.Params.InputResponses[key].(*mcp.CreateMessageWithToolsResult); ok && len(r.Content) > 0 {
		return said(r.Content[0])
	}
	return ""
}

func said(c mcp.Content) string {
	if t, ok := c.(*mcp.TextContent); ok {
		return t.Text
	}
	return ""
}

func roots(req *mcp.CallToolRequest) int {
	if r, ok := req.Params.InputResponses["client_roots"].(*mcp.ListRootsResult); ok {
		return len(r.Roots)
	}
	return 0
}
