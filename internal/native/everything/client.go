package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ask puts a question to the client in the way of its era. In the newer one the
// first call returns again, an input-required result that the handler must
// return; the client calls once more, and then the answer is there. In the
// older one send asks at once.
func ask[R mcp.InputResponse](ctx context.Context, req *mcp.CallToolRequest, question mcp.InputRequest, state string, send func(context.Context) (R, error)) (answer R, again *mcp.CallToolResult, err error) {
	const key = "question"
	if a, ok := req.Params.InputResponses[key].(R); ok {
		return a, nil, nil
	}
	if modern(req.Session) {
		return answer, &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: question}, RequestState: state}, nil
	}
	answer, err = send(ctx)
	return answer, nil, err
}

func elicit(ctx context.Context, req *mcp.CallToolRequest, p *mcp.ElicitParams) (*mcp.ElicitResult, *mcp.CallToolResult, error) {
	return ask(ctx, req, p, p.ElicitationID, func(ctx context.Context) (*mcp.ElicitResult, error) {
		return req.Session.Elicit(ctx, p)
	})
}

// addClientTools adds the tools that ask their client something.
func (s *server) addClientTools() {
	add(s, tool{
		name: "get-roots-list", title: "Roots", hints: pureHints,
		description: "Lists the roots that the client has given",
	}, s.listRoots)
	add(s, tool{
		name: "trigger-elicitation-request", title: "Elicitation",
		description: "Asks the user to fill in a form with a field of every kind",
	}, s.elicitForm)
	add(s, tool{
		name: "trigger-sampling-request", title: "Sampling", hints: hints{openWorld: true},
		description: "Asks the client's model to answer a prompt",
		properties: map[string]any{
			"prompt":    prop("string", "What to ask the model"),
			"maxTokens": prop("number", "How long the answer may be", "default", 100),
		},
		required: []string{"prompt"},
	}, s.sample)
	add(s, tool{
		name: "trigger-url-elicitation", title: "URL elicitation", hints: hints{openWorld: true},
		description: "Asks the user to open a link: by a request that waits for the user, or with errorPath by the error -32042, after which the same call goes the first way",
		properties: map[string]any{
			"url":           prop("string", "The link to open", "format", "uri"),
			"message":       prop("string", "What to tell the user", "default", "Please open the link to complete this action."),
			"elicitationId": prop("string", "An id to use instead of a random one"),
			"errorPath":     prop("boolean", "Answer the first call with the error -32042 instead of a request", "default", false),
		},
		required: []string{"url"},
	}, s.elicitURL)
}

func (s *server) listRoots(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
	se := s.sessions.get(req.Session)
	roots, known := se.knownRoots()
	if modern(req.Session) || !known {
		res, again, err := ask(ctx, req, &mcp.ListRootsParams{}, "", func(ctx context.Context) (*mcp.ListRootsResult, error) {
			return req.Session.ListRoots(ctx, nil)
		})
		if err != nil || again != nil {
			return again, err
		}
		if roots = res.Roots; !modern(req.Session) {
			se.setRoots(roots)
		}
	}
	if len(roots) == 0 {
		return texts("The client supports roots but has given none: it may have none, or not have loaded them yet."), nil
	}
	entries := make([]string, len(roots))
	for i, r := range roots {
		name := r.Name
		if name == "" {
			name = "Unnamed Root"
		}
		entries[i] = fmt.Sprintf("%d. %s\n   URI: %s", i+1, name, r.URI)
	}
	return texts(fmt.Sprintf("Current MCP Roots (%d total):\n\n%s\n\nNote: this server only shows roots; it reads no files below them.", len(roots), strings.Join(entries, "\n\n"))), nil
}

func (s *server) elicitForm(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, error) {
	answer, again, err := elicit(ctx, req, &mcp.ElicitParams{
		Mode:            "form",
		Message:         "Please provide inputs for the following fields:",
		RequestedSchema: json.RawMessage(formSchema),
	})
	if err != nil || again != nil {
		return again, err
	}
	var lines []string
	switch {
	case answer.Action == "accept" && answer.Content != nil:
		lines = append(lines, "✅ User provided the requested information!", "User inputs:\n"+strings.Join(inputs(answer.Content), "\n"))
	case answer.Action == "decline":
		lines = append(lines, "❌ User declined to provide the requested information.")
	case answer.Action == "cancel":
		lines = append(lines, "⚠️ User cancelled the elicitation dialog.")
	}
	return texts(append(lines, "\nRaw result: "+indented(answer))...), nil
}

func inputs(content map[string]any) []string {
	var out []string
	for _, f := range []struct{ key, label string }{
		{"name", "Name"}, {"check", "Agreed to terms"}, {"email", "Email"}, {"homepage", "Homepage"},
		{"birthdate", "Birthdate"}, {"integer", "Favorite Integer"}, {"number", "Favorite Number"},
	} {
		switch v := content[f.key].(type) {
		case nil:
		case string:
			if v != "" {
				out = append(out, fmt.Sprintf("- %s: %s", f.label, v))
			}
		default:
			out = append(out, fmt.Sprintf("- %s: %s", f.label, indented(v)))
		}
	}
	return out
}

func (s *server) sample(ctx context.Context, req *mcp.CallToolRequest, in struct {
	Prompt    string  `json:"prompt"`
	MaxTokens float64 `json:"maxTokens"`
}) (*mcp.CallToolResult, error) {
	params := &mcp.CreateMessageWithToolsParams{
		Messages: []*mcp.SamplingMessageV2{{
			Role:    "user",
			Content: []mcp.Content{&mcp.TextContent{Text: "Resource trigger-sampling-request context: " + in.Prompt}},
		}},
		SystemPrompt: "You are a helpful test server.",
		MaxTokens:    int64(in.MaxTokens),
		Temperature:  0.7,
	}
	answer, again, err := ask(ctx, req, params, "", func(ctx context.Context) (*mcp.CreateMessageWithToolsResult, error) {
		return req.Session.CreateMessageWithTools(ctx, params)
	})
	if err != nil || again != nil {
		return again, err
	}
	shown := struct {
		Model      string `json:"model"`
		StopReason string `json:"stopReason,omitempty"`
		Role       string `json:"role"`
		Content    any    `json:"content"`
	}{answer.Model, answer.StopReason, string(answer.Role), answer.Content}
	if len(answer.Content) == 1 {
		shown.Content = answer.Content[0]
	}
	return texts("LLM sampling result: \n" + indented(shown)), nil
}

type urlArgs struct {
	URL           string `json:"url"`
	Message       string `json:"message"`
	ElicitationID string `json:"elicitationId"`
	ErrorPath     bool   `json:"errorPath"`
}

func (s *server) elicitURL(ctx context.Context, req *mcp.CallToolRequest, in urlArgs) (*mcp.CallToolResult, error) {
	if u, err := url.Parse(in.URL); err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("%q is not a whole URL", in.URL)
	}
	answered := len(req.Params.InputResponses) > 0
	if in.ErrorPath && !answered && s.sessions.get(req.Session).prompt(in) {
		err := mcp.URLElicitationRequiredError([]*mcp.ElicitParams{{
			Mode: "url", URL: "https://modelcontextprotocol.io", ElicitationID: newID(),
			Message: "Open this link first, then make the same call again.",
		}})
		var we *jsonrpc.Error
		if errors.As(err, &we) {
			return nil, we // the SDK wants the bare type to pass it on as it is
		}
		return nil, err
	}
	id := in.ElicitationID
	if id == "" {
		// The second call of the newer era brings back the id of the first. It
		// is only shown, so nothing is gained by forging it.
		if id = req.Params.RequestState; !answered || id == "" {
			id = newID()
		}
	}
	answer, again, err := elicit(ctx, req, &mcp.ElicitParams{Mode: "url", URL: in.URL, Message: in.Message, ElicitationID: id})
	if err != nil || again != nil {
		return again, err
	}
	var lines []string
	switch answer.Action {
	case "accept":
		lines = append(lines, fmt.Sprintf("✅ User completed the URL elicitation flow.\nElicitation ID: %s\nURL: %s", id, in.URL))
	case "decline":
		lines = append(lines, fmt.Sprintf("❌ User declined to open the URL (Elicitation ID: %s).", id))
	case "cancel":
		lines = append(lines, fmt.Sprintf("⚠️ User cancelled the URL elicitation (Elicitation ID: %s).", id))
	}
	return texts(append(lines, "\nRaw result: "+indented(answer))...), nil
}

// prompt reports whether a call must get the error first. The next same call
// is its retry and does not.
func (se *session) prompt(in urlArgs) bool {
	const most = 100 // calls that were never retried are forgotten
	key := in.URL + "\x00" + in.ElicitationID
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.prompted[key] {
		delete(se.prompted, key)
		return false
	}
	if se.prompted == nil || len(se.prompted) >= most {
		se.prompted = map[string]bool{}
	}
	se.prompted[key] = true
	return true
}

func newID() string { return strings.ToLower(rand.Text()) }
