package agent

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tine-mcp/tine/internal/store"
)

// Bounds of the prompt of one delivery. What is cut is read as the child's result; what
// is too much for one comes with the next.
const (
	mostCallbackText  = 64 << 10
	mostCallbackTexts = 512 << 10
	mostCallbacks     = 64
)

// callbackPrompt is what an agent is told of the ends of those that it has started.
func callbackPrompt(all []store.Callback) string {
	var b strings.Builder
	if len(all) > 1 {
		fmt.Fprintf(&b, "<agent-callback type=\"aggregated\" count=\"%d\">\n", len(all))
	}
	for _, cb := range all {
		d := readCallback(cb)
		text := d.Text
		if len(d.Data) > 0 {
			text = strings.TrimSpace(text + "\n" + string(d.Data))
		}
		fmt.Fprintf(&b, "<agent-callback session=\"%s\" status=\"%s\">\n%s\n</agent-callback>\n", cb.Child, d.Status, quoteCallback(clipText(text)))
	}
	if len(all) > 1 {
		b.WriteString("</agent-callback>\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func clipText(s string) string {
	if len(s) <= mostCallbackText {
		return s
	}
	return strings.ToValidUTF8(s[:mostCallbackText], "") + "\n(The rest is left out; the result of the session has the whole.)"
}

// callbackTag is what a child could write to look like another one's callback.
var callbackTag = regexp.MustCompile(`(?i)<(\s*/?\s*agent-callback)`)

// quoteCallback has a text that stands in a callback end none and begin none.
func quoteCallback(s string) string { return callbackTag.ReplaceAllString(s, "&lt;$1") }
