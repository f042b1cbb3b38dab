package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver/builtin"
)

// TestFirstNotesOfCallsThatMayNeedInput checks that what a legacy server says at the
// very first moment of a call that could need input is not lost. The server is
// in the process, so that nothing is quicker.
func TestFirstNotesOfCallsThatMayNeedInput(t *testing.T) {
	t.Parallel()
	w := open(t, servers("t", "{builtin: everything, scope: session, protocol: 2025-11-25}"),
		map[string]builtin.Kind{"everything": factory(func() *mcp.Server { return newTalkative(t, false).Server })})
	withToken := strings.Replace(meta(bothCaps), `"_meta":{`, `"_meta":{"progressToken":"mine",`, 1)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"progress",%s}}`, withToken)
	for range 100 {
		m, notes := w.do(t, "POST", "/mcp/t", body, modernHeaders("tools/call", "progress")...).all()
		if got := resultText(t, m); got != "progressed" {
			t.Fatalf("got %q", got)
		}
		var said []string
		for _, n := range notes {
			said = append(said, progressOf(t, n))
		}
		if got := strings.Join(said, ", "); got != "step 1, step 2, step 3" {
			t.Fatalf("heard %q", got)
		}
	}
}
