package main

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolName is the one tool of the echo server.
const toolName = "echo"

type echoArgs struct {
	Text string `json:"text" jsonschema:"the text to give back"`
}

// newEcho makes the server that everything is measured in front of. It does as
// little as an SDK server can, so that what stands before it shows.
func newEcho() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: toolName, Description: "Gives the text back."},
		func(_ context.Context, _ *mcp.CallToolRequest, in echoArgs) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	return s
}

// echoHandler serves one era: sessions for the revisions up to 2025-11-25,
// stateless for 2026-07-28. Answers are event streams, which is the SDK's default
// and the harder case for whatever relays them.
func echoHandler(stateless bool) http.Handler {
	s := newEcho()
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: stateless},
	))
	return mux
}

func serveEchoStdio(ctx context.Context) error {
	return newEcho().Run(ctx, &mcp.StdioTransport{})
}
