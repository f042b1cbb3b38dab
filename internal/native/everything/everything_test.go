package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestToolsByCapability(t *testing.T) {
	always := []string{"echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference", "get-structured-content", "get-sum", "get-tiny-image", "gzip-file-as-resource", "simulate-research-query", "toggle-simulated-logging", "toggle-subscriber-updates", "trigger-long-running-operation"}
	tests := []struct {
		name string
		caps mcp.ClientCapabilities
		more []string
	}{
		{"nothing", mcp.ClientCapabilities{}, nil},
		{"roots", mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}}, []string{"get-roots-list"}},
		{"sampling", mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}, []string{"trigger-sampling-request"}},
		{"form", mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}}, []string{"trigger-elicitation-request"}},
		{"url", mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}}, []string{"trigger-elicitation-request", "trigger-url-elicitation"}},
	}
	s := build(t, nil)
	for _, era := range nativetest.Eras() {
		for _, tt := range tests {
			t.Run(era+"/"+tt.name, func(t *testing.T) {
				cs := nativetest.Connect(t, s.Server, era, &mcp.ClientOptions{Capabilities: &tt.caps})
				want := slices.Sorted(slices.Values(append(slices.Clone(always), tt.more...)))
				if got := toolNames(t, cs); !slices.Equal(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
				for name := range needs {
					_, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{"prompt": "x", "url": "http://x"}})
					var we *jsonrpc.Error
					hidden := errors.As(err, &we) && strings.Contains(we.Message, "needs a capability")
					if hidden == slices.Contains(tt.more, name) {
						t.Errorf("call of %s: err = %v", name, err)
					}
				}
			})
		}
	}
}

func TestEnvironmentIsNotTheGateways(t *testing.T) {
	t.Setenv("TINE_TEST_SECRET", "do-not-show")
	for _, set := range []map[string]any{nil, {"env": map[string]any{"A": "<b>"}}} {
		cs := nativetest.Connect(t, build(t, set).Server, nativetest.Modern, nil)
		got := nativetest.Text(nativetest.Call(t, cs, "get-env", nil))
		want := "{}"
		if set != nil {
			want = "{\n  \"A\": \"<b>\"\n}"
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, bad := range []map[string]any{{"x": 1}, {"env": []string{"A=b"}}, {"env": map[string]any{"A": 1}}, {"allow_private": "no"}} {
		if _, err := New(bad); err == nil || !strings.HasPrefix(err.Error(), "settings.") {
			t.Errorf("New(%v): err = %v", bad, err)
		}
	}
}
