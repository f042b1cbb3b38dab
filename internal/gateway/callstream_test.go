package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/driver/builtin"
)

// TestCallProgress checks that a caller of the control API hears how far a server
// is, step by step, and gets the result or the error all the same.
func TestCallProgress(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{}) // the caller has heard of a step
	server := func() *mcp.Server {
		s := sdkServer("stepping", nil)
		for _, tool := range []string{"steps", "dies", "quiet", "fails"} {
			s.AddTool(&mcp.Tool{Name: tool, InputSchema: anyObject}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				for i := 1; i <= 3 && (tool == "steps" || tool == "dies"); i++ {
					p := &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Total: 3, Message: strings.Repeat("x", 2000)}
					if err := r.Session.NotifyProgress(ctx, p); err != nil {
						return nil, err
					}
					select {
					case <-heard:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				switch tool {
				case "dies":
					return nil, &jsonrpc.Error{Code: -32603, Message: "it died"}
				case "fails":
					return nil, errors.New("it broke")
				}
				return text("done\nwith " + tool), nil
			})
		}
		return s
	}
	w := open(t, servers("a", `{builtin: everything, scope: session}`), map[string]builtin.Kind{"everything": factory(server)})
	c, err := client.New(client.Options{URL: w.at("")})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tool  string
		steps int
		want  string // in the result
		kind  api.Kind
	}{
		{"a__steps", 3, "with steps", ""},
		{"a__quiet", 0, "with quiet", ""},
		{"a__fails", 0, "", api.KindTool},
		{"a__nosuch", 0, "", api.KindInvalid},
		{"a__dies", 3, "", api.KindTool},
	} {
		var steps []string
		result, err := c.CallTelling(t.Context(), "", tt.tool, nil, func(p api.CallProgress) {
			steps = append(steps, fmt.Sprintf("%v of %v", p.Progress, p.Total))
			if len(p.Message) > 1100 {
				t.Errorf("a message of %d bytes", len(p.Message))
			}
			heard <- struct{}{}
		})
		if want := []string{"1 of 3", "2 of 3", "3 of 3"}[:tt.steps]; !slices.Equal(steps, want) {
			t.Errorf("%s: heard %q", tt.tool, steps)
		}
		var ae *api.Error
		if errors.As(err, &ae); tt.kind != "" && (ae == nil || ae.Kind != tt.kind || ae.Status == 0) || tt.kind == "" && (err != nil || !strings.Contains(string(result), tt.want)) {
			t.Errorf("%s: %s, %+v", tt.tool, result, err)
		}
	}
	// Who did not ask for lines gets none.
	r := make(chan *reply)
	go func() { r <- w.do(t, "POST", "/v1/call", `{"tool":"a__steps"}`, "Content-Type", "application/json") }()
	for {
		select {
		case heard <- struct{}{}:
			continue
		case got := <-r:
			if got.header.Get("Content-Type") != "application/json" || !strings.Contains(string(got.body), "with steps") {
				t.Errorf("%v %s", got.header, got.body)
			}
		}
		break
	}
}
