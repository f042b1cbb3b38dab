package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
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
	// call makes a call and has each step told; the last event is what came of it.
	call := func(tool string, tell func(api.CallProgress)) (last api.CallEvent) {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "POST", w.at("/v1/call"), strings.NewReader(`{"tool":"`+tool+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/x-ndjson")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			last.Error, last.Status = new(api.Error), resp.StatusCode
			if err := json.NewDecoder(resp.Body).Decode(last.Error); err != nil {
				t.Fatal(err)
			}
			return last
		}
		for events := json.NewDecoder(resp.Body); ; {
			var event api.CallEvent
			if err := events.Decode(&event); err != nil {
				t.Fatal(err)
			}
			if event.Progress == nil {
				return event
			}
			tell(*event.Progress)
		}
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
		last := call(tt.tool, func(p api.CallProgress) {
			steps = append(steps, fmt.Sprintf("%v of %v", p.Progress, p.Total))
			if len(p.Message) > 1100 {
				t.Errorf("a message of %d bytes", len(p.Message))
			}
			heard <- struct{}{}
		})
		if want := []string{"1 of 3", "2 of 3", "3 of 3"}[:tt.steps]; !slices.Equal(steps, want) {
			t.Errorf("%s: heard %q", tt.tool, steps)
		}
		if e := last.Error; tt.kind != "" && (e == nil || e.Kind != tt.kind || last.Status < 400) || tt.kind == "" && (e != nil || !strings.Contains(string(last.Result), tt.want)) {
			t.Errorf("%s: %+v", tt.tool, last)
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
