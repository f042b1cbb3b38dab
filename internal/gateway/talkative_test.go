package gateway_test

//lint:file-ignore SA1019 what newer revisions deprecate is relayed all the same

import (
	"context"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A talkative is an SDK server that uses everything a server may say during a
// call. The same tools work in both eras: a legacy one asks its client, a modern
// one sends the call back with what it wants to know.
type talkative struct {
	*mcp.Server
	modern  bool
	started chan string // a tool that waits has started
	ended   chan error  // and ended, with why
}

// newTalkative makes one. Its tools end with the test, even while clients wait.
func newTalkative(t *testing.T, modern bool) *talkative {
	s := &talkative{modern: modern, started: make(chan string, 64), ended: make(chan error, 64)}
	s.Server = sdkServer("talkative", &mcp.ServerOptions{
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{r.Params.Argument.Value + "!"}}}, nil
		},
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	for name, h := range map[string]mcp.ToolHandler{
		"progress": s.progress, "log": s.log, "wait": s.wait, "elicit": s.elicit, "sample": s.sample, "two": s.two, "roots": s.roots,
		"echo": func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(string(r.Params.Arguments)), nil
		},
		"fail": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			r := text("it broke")
			r.IsError = true
			return r, nil
		},
	} {
		s.AddTool(&mcp.Tool{Name: name, Description: name, InputSchema: anyObject}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(t.Context(), cancel)()
			return h(ctx, r)
		})
	}
	s.AddResource(&mcp.Resource{URI: "res://1", Name: "one"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "res://1", Text: "first"}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "p"}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "prompt " + r.Params.Arguments["x"]}, nil
	})
	return s
}

func (s *talkative) progress(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for i := 1; i <= 3; i++ {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Total: 3, Message: fmt.Sprint("step ", i)})
		if err != nil {
			return nil, err
		}
	}
	return text("progressed"), nil
}

func (s *talkative) log(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	for _, level := range []mcp.LoggingLevel{"debug", "warning", "error"} {
		if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Logger: "l", Data: string(level) + " data"}); err != nil {
			return nil, err
		}
	}
	return text("logged"), nil
}

func (s *talkative) wait(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	s.started <- "wait"
	<-ctx.Done()
	s.ended <- context.Cause(ctx)
	return nil, ctx.Err()
}

func elicitation(msg string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: msg, RequestedSchema: map[string]any{
		"type": "object", "properties": map[string]any{"who": map[string]any{"type": "string"}}}}
}

func sampling(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{MaxTokens: 9, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}}}
}

// ask puts a question to the client in the way of the era. Done is false when
// the call has to be sent back with the result it returns.
func (s *talkative) ask(ctx context.Context, r *mcp.CallToolRequest, key string, what mcp.InputRequest) (_ mcp.InputResponse, back *mcp.CallToolResult, err error) {
	if s.modern {
		if got, ok := r.Params.InputResponses[key]; ok {
			return got, nil, nil
		}
		return nil, &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: what}, RequestState: "state " + key}, nil
	}
	switch p := what.(type) {
	case *mcp.ElicitParams:
		got, err := r.Session.Elicit(ctx, p)
		return got, nil, err
	case *mcp.CreateMessageParams:
		got, err := r.Session.CreateMessage(ctx, p)
		return got, nil, err
	case *mcp.ListRootsParams:
		got, err := r.Session.ListRoots(ctx, p)
		return got, nil, err
	}
	return nil, nil, fmt.Errorf("can't ask %T", what)
}

func (s *talkative) elicit(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	got, back, err := s.ask(ctx, r, "who", elicitation("who are you? "+string(r.Params.Arguments)))
	if err != nil || back != nil {
		return back, err
	}
	res := got.(*mcp.ElicitResult)
	return text(fmt.Sprint(res.Action, " ", res.Content["who"])), nil
}

func (s *talkative) sample(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	got, back, err := s.ask(ctx, r, "model", sampling("say "+string(r.Params.Arguments)))
	if err != nil || back != nil {
		return back, err
	}
	switch res := got.(type) {
	case *mcp.CreateMessageResult:
		return text(res.Model + ": " + res.Content.(*mcp.TextContent).Text), nil
	case *mcp.CreateMessageWithToolsResult:
		return text(res.Model + ": " + res.Content[0].(*mcp.TextContent).Text), nil
	}
	return nil, fmt.Errorf("sampled %T", got)
}

func (s *talkative) roots(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	got, back, err := s.ask(ctx, r, "roots", &mcp.ListRootsParams{})
	if err != nil || back != nil {
		return back, err
	}
	var all string
	for _, root := range got.(*mcp.ListRootsResult).Roots {
		all += root.URI + " "
	}
	return text(all), nil
}

// two asks twice, one after the other.
func (s *talkative) two(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var said string
	for _, key := range []string{"first", "second"} {
		if s.modern && key == "second" && r.Params.RequestState == "state first" {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: elicitation(key)}, RequestState: "state second"}, nil
		}
		got, back, err := s.ask(ctx, r, key, elicitation(key))
		if s.modern && key == "first" && r.Params.RequestState == "state second" {
			said, back, err = "(earlier)", nil, nil
			continue
		}
		if err != nil || back != nil {
			return back, err
		}
		said += fmt.Sprint(got.(*mcp.ElicitResult).Content["who"])
	}
	return text(said), nil
}
