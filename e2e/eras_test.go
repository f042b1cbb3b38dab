//go:build unix

package e2e

//lint:file-ignore SA1019 what newer revisions deprecate is relayed all the same

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"
)

// A person answers what a server asks: with a name and a completion that nobody
// else would give.
type person struct {
	*mcp.ClientSession
	name string
}

// connect joins the gateway as a client of one revision.
func connect(t testing.TB, url, version, name string) *person {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"username": name, "name": name}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "said by " + name}}, nil
		},
	})
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect to %s as %s: %v", url, version, err)
	}
	t.Cleanup(func() { s.Close() })
	return &person{s, name}
}

func (p *person) ask(ctx context.Context, tool string) (string, error) {
	args := map[string]any{}
	switch {
	case strings.HasSuffix(tool, "test_elicitation"):
		args["message"] = "who are you?"
	case strings.HasSuffix(tool, "test_sampling"):
		args["prompt"] = "say it"
	}
	r, err := p.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	if r.IsError {
		return "", fmt.Errorf("%s fails: %s", tool, b.String())
	}
	return b.String(), nil
}

// TestErasMeet holds that a client of either era answers what a server of
// either era asks, and that with many clients at once each is asked for its own
// calls only.
func TestErasMeet(t *testing.T) {
	t.Parallel()
	server := need(t, everythingServer)[0]
	listen := func(stateless bool) string {
		return serve(t, server, func(addr string) []string {
			return []string{"-http", addr, fmt.Sprintf("-stateless=%t", stateless)}
		})
	}
	g := startGateway(t, fmt.Sprintf("servers:\n  legacy:\n    url: http://%s/mcp\n  modern:\n    url: http://%s/mcp\n", listen(false), listen(true))+
		yamlServer("stdio", server, nil)+
		yamlServer("stdiolegacy", server, nil, `protocol: "2025-11-25"`))

	tools := map[string][]string{
		"legacy":      {"test_elicitation", "test_sampling"},
		"modern":      {"test_input_required_result_elicitation", "test_input_required_result_sampling"},
		"stdio":       {"test_input_required_result_elicitation", "test_input_required_result_sampling"},
		"stdiolegacy": {"test_elicitation", "test_sampling"},
	}
	for _, version := range []string{legacyVersion, modernVersion} {
		for upstream, names := range tools {
			t.Run(version+" client, "+upstream+" server", func(t *testing.T) {
				t.Parallel()
				// Stateless callers without a name share one session, and so one
				// server of it: whose question a legacy server asks over stdio can
				// be told while one call is running, and not otherwise.
				alone := version == modernVersion && upstream == "stdiolegacy"
				people := 3
				var all errgroup.Group
				if alone {
					people = 1
					all.SetLimit(1)
				}
				for n := range people {
					p := connect(t, g.url+"/mcp", version, fmt.Sprintf("person-%d", n))
					for _, tool := range slices.Repeat(names, 3) {
						all.Go(func() error {
							got, err := p.ask(t.Context(), upstream+"__"+tool)
							if err == nil && !strings.Contains(got, p.name) {
								err = fmt.Errorf("%s of %s answers %q", tool, p.name, got)
							}
							if err != nil {
								t.Error(err)
							}
							return nil
						})
					}
				}
				all.Wait()
			})
		}
	}
}
