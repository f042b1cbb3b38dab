package builtin

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/native/everything"
	"github.com/tine-mcp/tine/internal/native/fetch"
	"github.com/tine-mcp/tine/internal/native/timeserver"
)

// TestNativeServers runs each server of the binary as the gateway does: over a
// link, in both eras, one link after another, with work left running at the
// end.
func TestNativeServers(t *testing.T) {
	d := New(Options{Kinds: map[string]Kind{
		"time": stateless(timeserver.New), "fetch": stateless(fetch.New), "everything": stateless(everything.New),
	}})
	declines := &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) {},
	}
	for name, tools := range map[string]int{"time": 2, "fetch": 1, "everything": 15} {
		t.Run(name, func(t *testing.T) {
			inst, err := d.Start(t.Context(), driver.Spec{Server: name, Builtin: name})
			if err != nil {
				t.Fatal(err)
			}
			var last *mcp.ClientSession
			for _, era := range []string{"2025-11-25", "2026-07-28", "2025-11-25", "2026-07-28"} {
				if last != nil {
					last.Close()
				}
				cs := connect(t, inst, era, declines)
				last = cs
				list, err := cs.ListTools(t.Context(), nil)
				if err != nil || len(list.Tools) != tools {
					t.Fatalf("%s: %d tools, %v", era, len(list.Tools), err)
				}
				if name != "everything" {
					continue
				}
				if err := cs.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "demo://resource/dynamic/text/1"}); err != nil {
					t.Fatal(err)
				}
				for _, tool := range []string{"trigger-elicitation-request", "toggle-simulated-logging", "toggle-subscriber-updates"} {
					if res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool}); err != nil || res.IsError {
						t.Errorf("%s %s: %v, %v", era, tool, res, err)
					}
				}
			}
			if err := inst.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
