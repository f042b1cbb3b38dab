package gateway_test

//lint:file-ignore SA1019 what newer revisions deprecate is relayed all the same

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/internal/testkit"
)

// eachEra runs f for every combination of eras and both views. Name turns a
// server's own name into the view's.
func eachEra(t *testing.T, f func(t *testing.T, w *world, s *talkative, path string, modernClient bool, name func(string) string)) {
	for _, era := range eras {
		for path, prefix := range map[string]string{"/mcp/t": "", "/mcp": "t__"} {
			t.Run(era.name+" at "+path, func(t *testing.T) {
				s := newTalkative(t, era.upstream)
				w := open(t, servers("t", serveSDK(t, s.Server, era.upstream)))
				f(t, w, s, path, era.client, func(n string) string { return prefix + n })
			})
		}
	}
}

func call(t *testing.T, cs *mcp.ClientSession, tool string, args any) *mcp.CallToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("call %s: %v", tool, err)
	}
	return r
}

func TestEverythingPlain(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, w *world, _ *talkative, path string, modernClient bool, name func(string) string) {
		cs := w.connect(t, path, modernClient, nil)
		if got := textOf(t, call(t, cs, name("echo"), json.RawMessage(`{"n":12345678901234567890}`))); got != `{"n":12345678901234567890}` {
			t.Errorf("echoed %s", got)
		}
		if r := call(t, cs, name("fail"), nil); !r.IsError || textOf(t, r) != "it broke" {
			t.Errorf("a failed tool answers %+v", r)
		}
		var listed []string
		for tool, err := range cs.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, tool.Name)
		}
		if len(listed) != 9 || !slices.Contains(listed, name("echo")) {
			t.Errorf("listed %q", listed)
		}
		resources, err := cs.ListResources(t.Context(), nil)
		if err != nil || len(resources.Resources) != 1 {
			t.Fatalf("resources: %v, %v", resources, err)
		}
		if got := read(t, cs, resources.Resources[0].URI); got.Text != "first" {
			t.Errorf("read %q", got.Text)
		}
		p, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name("p"), Arguments: map[string]string{"x": "y"}})
		if err != nil || p.Description != "prompt y" {
			t.Errorf("prompt: %v, %v", p, err)
		}
		c, err := cs.Complete(t.Context(), &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: name("p")}, Argument: mcp.CompleteParamsArgument{Name: "x", Value: "v"}})
		if err != nil || !slices.Equal(c.Completion.Values, []string{"v!"}) {
			t.Errorf("completion: %v, %v", c, err)
		}
	})
}

func TestProgressPasses(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, w *world, _ *talkative, path string, modernClient bool, name func(string) string) {
		got := make(chan string, 16)
		cs := w.connect(t, path, modernClient, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				got <- fmt.Sprint(r.Params.ProgressToken, " ", r.Params.Progress, " ", r.Params.Message)
			},
		})
		for _, token := range []any{"mine", 42} {
			p := &mcp.CallToolParams{Name: name("progress")}
			p.SetProgressToken(token)
			if _, err := cs.CallTool(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for i := 1; i <= 3; i++ {
				if g, want := take(t, got), fmt.Sprintf("%v %d step %d", token, i, i); g != want {
					t.Errorf("got %q, want %q", g, want)
				}
			}
		}
	})
}

// take receives from a channel that must have something soon.
func take[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	select {
	case v := <-ch:
		return v
	case <-ctx.Done():
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestLoggingPasses(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, w *world, _ *talkative, path string, modernClient bool, name func(string) string) {
		got := make(chan string, 16)
		cs := w.connect(t, path, modernClient, &mcp.ClientOptions{
			LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { got <- fmt.Sprint(r.Params.Data) },
		})
		call(t, cs, name("echo"), nil)
		p := &mcp.CallToolParams{Name: name("log")}
		if modernClient {
			p.Meta = mcp.Meta{"io.modelcontextprotocol/logLevel": "warning"}
		} else if err := cs.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "warning"}); err != nil {
			t.Fatal(err)
		}
		if _, err := cs.CallTool(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"warning data", "error data"} {
			if g := take(t, got); g != want {
				t.Errorf("got %q, want %q", g, want)
			}
		}
	})
}

func TestCancellationReachesTheServer(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, w *world, s *talkative, path string, modernClient bool, name func(string) string) {
		cs := w.connect(t, path, modernClient, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: name("wait")}); err == nil {
				t.Error("a cancelled call succeeded")
			}
		})
		take(t, s.started)
		cancel()
		if err := take(t, s.ended); err == nil {
			t.Error("the call ended by itself")
		}
		wg.Wait()
		// The client goes on.
		call(t, cs, name("echo"), nil)
	})
}

func TestElicitationAndSamplingPass(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, w *world, _ *talkative, path string, modernClient bool, name func(string) string) {
		var asked []string
		cs := w.connect(t, path, modernClient, &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked = append(asked, r.Params.Message)
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"who": "ada"}}, nil
			},
			CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
				asked = append(asked, r.Params.Messages[0].Content.(*mcp.TextContent).Text)
				return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: &mcp.TextContent{Text: "said"}}, nil
			},
		})
		if got := textOf(t, call(t, cs, name("elicit"), json.RawMessage(`{"k":1}`))); got != "accept ada" {
			t.Errorf("elicited %q", got)
		}
		if got := textOf(t, call(t, cs, name("sample"), json.RawMessage(`{"k":2}`))); got != "m: said" {
			t.Errorf("sampled %q", got)
		}
		if got := textOf(t, call(t, cs, name("two"), nil)); got != "adaada" && got != "(earlier)ada" {
			t.Errorf("two questions gave %q", got)
		}
		if want := []string{`who are you? {"k":1}`, `say {"k":2}`, "first", "second"}; !slices.Equal(asked, want) {
			t.Errorf("the client was asked %q, want %q", asked, want)
		}
	})
}

// TestWhatAClientLacksIsDeclined checks that a server that asks a client which
// can't answer gets an answer all the same, and the client a result.
func TestWhatAClientLacksIsDeclined(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, w *world, s *talkative, path string, modernClient bool, name func(string) string) {
		cs := w.connect(t, path, modernClient, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
		for _, tool := range []string{"elicit", "sample"} {
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: name(tool)})
			if ctx.Err() != nil {
				t.Errorf("%s: no answer", tool)
			}
			if err == nil && tool == "elicit" && !r.NeedsInput() {
				if got := textOf(t, r); got != "decline <nil>" && !r.IsError {
					t.Errorf("%s: %q", tool, got)
				}
			}
			cancel()
		}
		call(t, cs, name("echo"), nil)
	})
}
