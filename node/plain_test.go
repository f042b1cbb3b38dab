package node_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// TestPlainAnswers looks at answers as HTTP. One that comes alone is JSON, so that its
// length is not that of an event, which official clients limit.
func TestPlainAnswers(t *testing.T) {
	steps := node.Func("steps", "Reports progress.", func(ctx context.Context, in struct {
		Count int `json:"count"`
	}) (string, error) {
		r := node.Request(ctx)
		for i := range in.Count {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i + 1)}); err != nil {
				return "", err
			}
		}
		return strings.Repeat("x", 2<<20), nil
	})
	url := serve(t, steps)
	const call = `{"jsonrpc":"2.0","id":%ID,"method":"tools/call","params":{"name":"steps","arguments":{"count":%COUNT},"_meta":{"progressToken":"p"%META}}}`
	const modern = `,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}`
	fill := func(id, count, meta string) string {
		return strings.NewReplacer("%ID", id, "%COUNT", count, "%META", meta).Replace(call)
	}
	for name, tt := range map[string]struct {
		path, version, body string
		media               string
		messages            int
	}{
		"handshake":           {"/mcp", "2025-11-25", fill("1", "0", ""), "application/json", 1},
		"handshake, progress": {"/streamable-http", "2025-11-25", fill("1", "2", ""), "text/event-stream", 3},
		"stateless":           {"/streamable-http", "2026-07-28", fill("1", "0", modern), "application/json", 1},
		"stateless, progress": {"/mcp", "2026-07-28", fill("1", "2", modern), "text/event-stream", 3},
		"batch":               {"/mcp", "2025-03-26", "[" + fill("1", "0", "") + "," + fill("2", "0", "") + "]", "text/event-stream", 2},
	} {
		t.Run(name, func(t *testing.T) {
			post := func(session, body string) *http.Response {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+tt.path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				for k, v := range map[string]string{
					"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": tt.version,
					"Mcp-Session-Id": session, "Mcp-Method": "tools/call", "Mcp-Name": "steps",
				} {
					if v != "" {
						req.Header.Set(k, v)
					}
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				return resp
			}
			session := ""
			if tt.version < "2026" {
				resp := post("", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+tt.version+
					`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
				resp.Body.Close()
				session = resp.Header.Get("Mcp-Session-Id")
				post(session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`).Body.Close()
			}
			resp := post(session, tt.body)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != tt.media {
				t.Fatalf("status %d, %s, %.300s, %v", resp.StatusCode, resp.Header.Get("Content-Type"), body, err)
			}
			messages := []string{string(body)}
			if tt.media != "application/json" {
				messages = strings.Split(strings.ReplaceAll(strings.TrimSpace(string(body)), "event: message\ndata: ", ""), "\n\n")
			}
			answers := 0
			for _, m := range messages {
				var got struct {
					Method string
					Result struct{ Content []struct{ Text string } }
				}
				if err := json.Unmarshal([]byte(m), &got); err != nil {
					t.Fatalf("%v in %.300s", err, m)
				}
				if got.Method == "" {
					if answers++; len(got.Result.Content) != 1 || len(got.Result.Content[0].Text) != 2<<20 {
						t.Errorf("answer %.300s", m)
					}
				}
			}
			if len(messages) != tt.messages || answers == 0 {
				t.Errorf("%d messages, %d answers, want %d", len(messages), answers, tt.messages)
			}
		})
	}
}
