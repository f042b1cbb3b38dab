// Command suite serves the tools that the official conformance suite calls, as
// nodes, at the address that is its argument.
//
//lint:file-ignore SA1019 The suite asks for sampling, roots and logging, which the newest revision deprecates.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

func main() {
	log.Fatal("suite: ", node.Serve(context.Background(), os.Args[1], append(tools, asking...)...))
}

// A handler is what most of the tools need: the request, and no arguments.
type handler func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error)

func tool(name string, h handler) node.Source {
	return node.Func(name, "A tool of the conformance suite.", func(ctx context.Context, _ any) (*mcp.CallToolResult, error) {
		return h(ctx, node.Request(ctx))
	})
}

func constant(contents ...mcp.Content) handler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: contents}, nil
	}
}

func text(s string) *mcp.TextContent { return &mcp.TextContent{Text: s} }

func resource(uri string) *mcp.EmbeddedResource {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "embedded"}}
}

var (
	image = &mcp.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}
	audio = &mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("RIFF&\x00\x00\x00WAVE")}
)

var tools = []node.Source{
	tool("test_simple_text", constant(text("This is a simple text response for testing."))),
	tool("test_image_content", constant(image)),
	tool("test_audio_content", constant(audio)),
	tool("test_embedded_resource", constant(resource("test://embedded-resource"))),
	tool("test_multiple_content_types", constant(text("Multiple content types test:"), image, resource("test://mixed-content-resource"))),
	tool("test_error_handling", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("this tool intentionally returns an error for testing")
	}),
	tool("test_tool_with_progress", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		token := req.Params.GetProgressToken()
		for _, done := range []float64{0, 50, 100} {
			if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: 100}); err != nil {
				return nil, err
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{text(fmt.Sprint(token))}}, nil
	}),
	tool("test_tool_with_logging", logging("started", "working", "done")),
	tool("test_logging_tool", logging("called")),
	tool("test_reconnection", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.Extra != nil && req.Extra.CloseSSEStream != nil {
			req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
		}
		return &mcp.CallToolResult{Content: []mcp.Content{text("the stream was closed meanwhile")}}, nil
	}),
	tool("test_missing_capability", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if caps := req.ClientCapabilities(); caps != nil && caps.Sampling != nil {
			return &mcp.CallToolResult{Content: []mcp.Content{text("the client can sample")}}, nil
		}
		data, err := json.Marshal(mcp.MissingRequiredClientCapabilityData{RequiredCapabilities: &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}})
		if err != nil {
			return nil, err
		}
		return nil, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client can't sample", Data: data}
	}),
	tool("test_streaming_elicitation", constant(text("nothing but a result"))),
	schema("json_schema_2020_12_tool", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},
			"phone":{"type":"string"},"email":{"type":"string"}},
		"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
		"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
		"additionalProperties":false}`),
	schema("test_x_mcp_header", `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`),
}

// logging is a tool that sends these messages, if the client wants them.
func logging(messages ...string) handler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, m := range messages {
			if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: m}); err != nil {
				return nil, err
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{text("logged")}}, nil
	}
}

// schema is a tool with a schema of its own, which gives its arguments back.
func schema(name, input string) node.Source {
	return node.New(&mcp.Tool{Name: name, Description: "A tool of the conformance suite.", InputSchema: json.RawMessage(input)},
		func(_ context.Context, args json.RawMessage) (*node.Result, error) {
			return node.NewResult(&mcp.CallToolResult{Content: []mcp.Content{text(string(args))}})
		})
}
