// Package fetch is the built-in MCP server "fetch": it gets a page of the web
// and gives it to a model as Markdown, in pieces where it is long. It has the
// tool, prompt and schema of the reference server mcp-server-fetch.
//
// The tool acts for a model and obeys robots.txt; the prompt acts for a person
// who named the page and does not ask it. Neither reaches an address that is
// not public, nor spends more time or memory than the settings allow.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/settings"
)

// Settings of the server.
type Settings struct {
	UserAgent    string            `json:"user_agent"`    // sent instead of the two default names
	IgnoreRobots bool              `json:"ignore_robots"` // don't ask robots.txt
	AllowPrivate bool              `json:"allow_private"` // reach private, loopback and link-local addresses too
	MaxBytes     int64             `json:"max_bytes"`     // of one page; default 5 MiB
	Timeout      settings.Duration `json:"timeout"`       // of one call; default 30s
	Proxy        string            `json:"proxy"`         // http, https or socks5 URL; the environment's are not used
}

// The names under which pages are asked for: for a model, and for a person.
const (
	agentAutonomous = "Tine/1.0 (Autonomous; +https://github.com/tine-mcp/tine)"
	agentManual     = "Tine/1.0 (User-Specified; +https://github.com/tine-mcp/tine)"
)

// New returns a server. It holds nothing that would need closing: connections
// end with the call that opened them.
func New(from map[string]any) (*mcp.Server, error) {
	s := Settings{MaxBytes: 5 << 20, Timeout: settings.Duration(30 * time.Second)}
	if err := settings.Decode(from, &s); err != nil {
		return nil, err
	}
	g, err := newGetter(s)
	if err != nil {
		return nil, err
	}
	srv := mcp.NewServer(
		&mcp.Implementation{Name: "fetch", Title: "Fetch", Version: "1.0.0"},
		// Neither list ever changes, so no change is announced.
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{
			Tools:   &mcp.ToolCapabilities{},
			Prompts: &mcp.PromptCapabilities{},
		}},
	)
	openWorld := true
	mcp.AddTool(srv, &mcp.Tool{
		Name:        "fetch",
		Description: "Gets a page from the web and returns it as Markdown, or as it is. Use it whenever something current or linked has to be read. Long pages come in pieces: the answer says how to get the next.",
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint:    true,
			DestructiveHint: new(bool),
			IdempotentHint:  true,
			OpenWorldHint:   &openWorld,
		},
		InputSchema: inputSchema(),
	}, g.tool)
	srv.AddPrompt(&mcp.Prompt{
		Name:        "fetch",
		Description: "Get a page from the web as Markdown",
		Arguments:   []*mcp.PromptArgument{{Name: "url", Description: "URL of the page", Required: true}},
	}, g.prompt)
	return srv, nil
}

func inputSchema() map[string]any {
	return map[string]any{
		"type": "object",
		"properties": map[string]any{
			"url": map[string]any{
				"type": "string", "format": "uri", "minLength": 1,
				"description": "URL of the page",
			},
			"max_length": map[string]any{
				"type": "integer", "default": 5000, "minimum": 1, "maximum": 999999,
				"description": "How many characters to return at most",
			},
			"start_index": map[string]any{
				"type": "integer", "default": 0, "minimum": 0,
				"description": "The character to start at: where the last piece ended",
			},
			"raw": map[string]any{
				"type": "boolean", "default": false,
				"description": "Return the page as it is, HTML included, instead of Markdown",
			},
		},
		"required": []string{"url"},
	}
}

type args struct {
	URL        string `json:"url"`
	MaxLength  int    `json:"max_length"`
	StartIndex int    `json:"start_index"`
	Raw        bool   `json:"raw"`
}

func (g *getter) tool(ctx context.Context, _ *mcp.CallToolRequest, in args) (*mcp.CallToolResult, any, error) {
	u, err := parseURL(in.URL)
	if err != nil {
		return nil, nil, err
	}
	prefix, content, err := g.get(ctx, u, in.Raw, true)
	if err != nil {
		return nil, nil, err
	}
	text := fmt.Sprintf("%sContents of %s:\n%s", prefix, u, piece(content, in.StartIndex, in.MaxLength))
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

// prompt shows a failure as the prompt's text: the person who asked for the
// page reads it there.
func (g *getter) prompt(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	raw, ok := req.Params.Arguments["url"]
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: `prompt "fetch" needs the argument url`}
	}
	var text string
	u, err := parseURL(raw)
	if err == nil {
		var prefix, content string
		prefix, content, err = g.get(ctx, u, false, false)
		text = prefix + content
	}
	if err != nil {
		text = err.Error()
	}
	return &mcp.GetPromptResult{
		Description: "The page at " + raw,
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}},
	}, nil
}

func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, fmt.Errorf("%q is not a URL: %w", raw, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q can't be fetched; give a whole URL that begins with http:// or https://", raw)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("%q names no host", raw)
	}
	u.Host = strings.ToLower(u.Host)
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

// piece cuts max characters out of a text, beginning at start, and says how to
// get the next ones where there are more.
func piece(text string, start, max int) string {
	from := runeOffset(text, start)
	if from == len(text) {
		return "<error>No more content available.</error>"
	}
	rest := text[from:]
	to := runeOffset(rest, max)
	if to == len(rest) {
		return rest
	}
	return fmt.Sprintf("%s\n\n<error>Content truncated. Call the fetch tool with a start_index of %d to get more content.</error>", rest[:to], start+max)
}

// runeOffset is the byte at which the nth character begins, or the end.
func runeOffset(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	i := 0
	for ; n > 0 && i < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return i
}
