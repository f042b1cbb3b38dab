package everything

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *server) addPrompts() {
	s.AddPrompt(&mcp.Prompt{Name: "simple-prompt", Title: "Simple", Description: "A prompt without arguments"},
		func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return textPrompt("This is a simple prompt without arguments."), nil
		})

	prompt(s, &mcp.Prompt{
		Name: "args-prompt", Title: "Arguments", Description: "A prompt with one argument that it needs and one that it does not",
		Arguments: []*mcp.PromptArgument{
			{Name: "city", Description: "A city", Required: true},
			{Name: "state", Description: "The state it lies in"},
		},
	}, func(args map[string]string) (*mcp.GetPromptResult, error) {
		place := args["city"]
		if args["state"] != "" {
			place += ", " + args["state"]
		}
		return textPrompt(fmt.Sprintf("What's weather in %s?", place)), nil
	})

	prompt(s, &mcp.Prompt{
		Name: "completable-prompt", Title: "Completion", Description: "A prompt whose arguments can be completed, the second by the first",
		Arguments: []*mcp.PromptArgument{
			{Name: "department", Description: "A department", Required: true},
			{Name: "name", Description: "One of its people", Required: true},
		},
	}, func(args map[string]string) (*mcp.GetPromptResult, error) {
		return textPrompt(fmt.Sprintf("Please promote %s to the head of the %s team.", args["name"], args["department"])), nil
	})

	prompt(s, &mcp.Prompt{
		Name: "resource-prompt", Title: "Resource", Description: "A prompt with a resource in it",
		Arguments: []*mcp.PromptArgument{
			{Name: "resourceType", Description: "Text or Blob", Required: true},
			{Name: "resourceId", Description: "A positive whole number", Required: true},
		},
	}, func(args map[string]string) (*mcp.GetPromptResult, error) {
		kind, id := args["resourceType"], args["resourceId"]
		if kind != kindText && kind != kindBlob {
			return nil, invalid("resourceType %q is neither %s nor %s", kind, kindText, kindBlob)
		}
		if !isID(id) {
			return nil, invalid("resourceId %q is not a positive whole number", id)
		}
		res := textPrompt(fmt.Sprintf("This prompt includes the %s resource with id: %s. Please analyze the following resource:", kind, id))
		res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: &mcp.EmbeddedResource{Resource: dynamic(kind, id)}})
		return res, nil
	})
}

// prompt registers a prompt that gets its required arguments or is not asked.
func prompt(s *server, p *mcp.Prompt, h func(map[string]string) (*mcp.GetPromptResult, error)) {
	s.AddPrompt(p, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		for _, a := range p.Arguments {
			if _, ok := req.Params.Arguments[a.Name]; a.Required && !ok {
				return nil, invalid("prompt %q needs the argument %s", p.Name, a.Name)
			}
		}
		return h(req.Params.Arguments)
	})
}

func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

func textPrompt(text string) *mcp.GetPromptResult {
	return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}
}

// complete suggests values for the arguments that have any.
func complete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	arg, ref := req.Params.Argument, req.Params.Ref
	var found []string
	switch ref.Type {
	case "ref/prompt":
		switch ref.Name {
		case "completable-prompt":
			switch arg.Name {
			case "department":
				found = starting(arg.Value, "Engineering", "Sales", "Marketing", "Support")
			case "name":
				var department string
				if c := req.Params.Context; c != nil {
					department = c.Arguments["department"]
				}
				found = starting(arg.Value, map[string][]string{
					"Engineering": {"Alice", "Bob", "Charlie"},
					"Sales":       {"David", "Eve", "Frank"},
					"Marketing":   {"Grace", "Henry", "Iris"},
					"Support":     {"John", "Kim", "Lee"},
				}[department]...)
			}
		case "resource-prompt":
			switch arg.Name {
			case "resourceType":
				found = starting(arg.Value, kindText, kindBlob)
			case "resourceId":
				found = ids(arg.Value)
			}
		case "simple-prompt", "args-prompt":
		default:
			return nil, invalid("there is no prompt %q", ref.Name)
		}
	case "ref/resource":
		if !slices.Contains([]string{textBase + "{resourceId}", blobBase + "{resourceId}"}, ref.URI) {
			return nil, invalid("there is no resource template %q", ref.URI)
		}
		if arg.Name == "resourceId" {
			found = ids(arg.Value)
		}
	}
	if found == nil {
		found = []string{}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: found, Total: len(found)}}, nil
}

func ids(value string) []string {
	if isID(value) {
		return []string{value}
	}
	return nil
}

func starting(with string, all ...string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, with) })
}
