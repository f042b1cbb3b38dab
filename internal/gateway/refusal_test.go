package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// What a client of MCP is refused before it is a client is an error of JSON-RPC, which
// clients show, and has the members that it has in the API beside that. An error of the
// gateway's own, and one that answers no message, has only those.
func TestRefusalsAreErrorsOfJSONRPC(t *testing.T) {
	t.Parallel()
	w := open(t, "auth: {tokens: [{name: ada, token: secret-of-ada-0123456789}]}\n"+servers("s", echoServer(t, true, "one").URL))
	const hello = `{"jsonrpc":"2.0","id":"hi","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
	type body struct {
		api.Error
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Failure struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Data    struct {
				Kind api.Kind `json:"kind"`
			} `json:"data"`
		} `json:"error"`
	}
	ada := []string{"Authorization", "Bearer secret-of-ada-0123456789"}
	for _, tt := range []struct {
		name, method, path string
		headers            []string
		status             int
		id, message        string // no id for no JSON-RPC
		code               int
		kind               api.Kind
	}{
		{"a wrong parameter", "POST", "/mcp?veiw=search", ada, 400, "null", "veiw", -32602, api.KindInvalid},
		{"no such server", "POST", "/mcp/none", ada, 404, "", "none", 0, api.KindInvalid},
		{"no such session", "POST", "/s/none/mcp", ada, 404, "", "none", 0, api.KindInvalid},
		{"a wrong version", "POST", "/mcp", append([]string{"Mcp-Protocol-Version", "1999-01-01"}, ada...), 400, `"hi"`, "1999-01-01", -32602, api.KindInvalid},
		{"no token", "POST", "/mcp", nil, 401, "", "token", 0, api.KindRefused},
		{"no message", "GET", "/mcp?veiw=search", ada, 400, "", "veiw", 0, api.KindInvalid},
		{"the API", "POST", "/v1/none", ada, 404, "", "none", 0, api.KindInvalid},
	} {
		r := w.do(t, tt.method, tt.path, hello, append([]string{"Content-Type", "application/json", "Accept", bothTypes}, tt.headers...)...)
		var b body
		decode(t, r.body, &b)
		if r.status != tt.status || r.header.Get("Content-Type") != "application/json" || b.Kind != tt.kind || !strings.Contains(b.Message, tt.message) {
			t.Errorf("%s: status %d, %s", tt.name, r.status, r.body)
		}
		if tt.id == "" {
			if b.JSONRPC != "" || b.ID != nil {
				t.Errorf("%s: it is answered with JSON-RPC: %s", tt.name, r.body)
			}
			continue
		}
		id := string(b.ID)
		if id == "" {
			id = "null"
		}
		if b.JSONRPC != "2.0" || id != tt.id || b.Failure.Code != tt.code || b.Failure.Message != b.Message || b.Failure.Data.Kind != tt.kind || !strings.Contains(string(r.body), `"id":`) {
			t.Errorf("%s: %s", tt.name, r.body)
		}
	}
	w.gw.Drain(t.Context())
	r := w.do(t, http.MethodPost, "/mcp", hello, append([]string{"Content-Type", "application/json", "Accept", bothTypes}, ada...)...)
	if r.status != http.StatusServiceUnavailable || strings.Contains(string(r.body), "jsonrpc") {
		t.Errorf("while it is stopped: status %d, %s", r.status, r.body)
	}
}
