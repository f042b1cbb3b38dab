package gateway_test

//lint:file-ignore SA1019 what newer revisions deprecate is relayed all the same

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestRootsPass checks that a server that may know a client's roots is told
// them, in every combination of eras.
func TestRootsPass(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			s := newTalkative(t, era.upstream)
			url := serveSDK(t, s.Server, era.upstream)
			w := open(t, servers("told", `{url: "`+url+`", client_capabilities: [roots]}`))
			client := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil)
			client.AddRoots(&mcp.Root{URI: "file:///one"}, &mcp.Root{URI: "file:///two"})
			version := legacyVersion
			if era.client {
				version = modernVersion
			}
			cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: w.at("/mcp"), HTTPClient: w.http}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cs.Close() })
			if got := textOf(t, call(t, cs, "told__roots", nil)); got != "file:///one file:///two " {
				t.Errorf("told %q", got)
			}
		})
	}
}
