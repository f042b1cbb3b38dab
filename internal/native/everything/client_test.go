package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// caller is a client that can answer everything and records requests and
// notifications.
type caller struct {
	mu       sync.Mutex
	elicited []*mcp.ElicitParams
	sampled  []*mcp.CreateMessageParams
	logged   []*mcp.LoggingMessageParams
	progress []*mcp.ProgressNotificationParams
	updated  []string
	changed  int // lists of resources

	answer mcp.ElicitResult
}

func newCaller(answer mcp.ElicitResult) *caller {
	return &caller{answer: answer}
}

func (c *caller) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// until waits until what is remembered fulfils ok.
func (c *caller) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	})
}

func (c *caller) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2:     &mcp.RootCapabilities{ListChanged: true},
			Sampling:    &mcp.SamplingCapabilities{},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			c.note(func() { c.elicited = append(c.elicited, r.Params) })
			a := c.answer
			a.Content = maps.Clone(a.Content)
			if r.Params.Mode == "url" {
				a.Content = nil
			}
			return &a, nil
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			c.note(func() { c.sampled = append(c.sampled, r.Params) })
			return &mcp.CreateMessageResult{Model: "m<1>", Role: "assistant", StopReason: "endTurn", Content: &mcp.TextContent{Text: "hi & bye"}}, nil
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			c.note(func() { c.logged = append(c.logged, r.Params) })
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.note(func() { c.progress = append(c.progress, r.Params) })
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			c.note(func() { c.updated = append(c.updated, r.Params.URI) })
		},
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) {
			c.note(func() { c.changed++ })
		},
	}
}

func build(t *testing.T, set map[string]any) *server {
	t.Helper()
	s, err := newServer(set, time.Millisecond, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t *testing.T, s *server, era string, c *caller) *mcp.ClientSession {
	t.Helper()
	return nativetest.Connect(t, s.Server, era, c.options())
}

func toolNames(t *testing.T, cs *mcp.ClientSession) []string {
	t.Helper()
	var names []string
	for tool, err := range cs.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}
