package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// refusal is an error that is the answer of a tool: what was asked for can't be
// done, and nothing is wrong with the server.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// answer writes JSON as JavaScript does, which leaves more characters as they
// are than encoding/json. It stops being of use when it passes its limit.
type answer struct {
	b     []byte
	limit int64 // of bytes; zero for none
}

func (a *answer) full() bool { return a.limit > 0 && int64(len(a.b)) > a.limit }

func (a *answer) raw(s string) { a.b = append(a.b, s...) }

func (a *answer) string(s string) {
	const hex = "0123456789abcdef"
	a.b = append(a.b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf || c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		a.b = append(a.b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			a.b = append(a.b, '\\', c)
		case '\b':
			a.b = append(a.b, `\b`...)
		case '\f':
			a.b = append(a.b, `\f`...)
		case '\n':
			a.b = append(a.b, `\n`...)
		case '\r':
			a.b = append(a.b, `\r`...)
		case '\t':
			a.b = append(a.b, `\t`...)
		default:
			a.b = append(a.b, `\u00`...)
			a.b = append(a.b, hex[c>>4], hex[c&15])
		}
	}
	a.b = append(a.b, s[from:]...)
	a.b = append(a.b, '"')
}

// list writes values until the answer is full.
func list[T any](a *answer, values iter.Seq[T], each func(T)) {
	a.raw("[")
	first := true
	for v := range values {
		if a.full() {
			return
		}
		if !first {
			a.raw(",")
		}
		first = false
		each(v)
	}
	a.raw("]")
}

func (a *answer) strings(s []string) { list(a, slices.Values(s), a.string) }

func (a *answer) graph(p parts) {
	a.raw(`{"entities":`)
	list(a, p.entities, a.entity)
	a.raw(`,"relations":`)
	list(a, p.relations, a.relation)
	a.raw("}")
}

func (a *answer) entity(e *entity) {
	a.raw(`{"name":`)
	a.string(e.Name)
	a.raw(`,"entityType":`)
	a.string(e.Type)
	a.raw(`,"observations":`)
	a.strings(e.Observations)
	a.raw("}")
}

func (a *answer) relation(r relation) {
	a.raw(`{"from":`)
	a.string(r.From)
	a.raw(`,"to":`)
	a.string(r.To)
	a.raw(`,"relationType":`)
	a.string(r.Type)
	a.raw("}")
}

func (a *answer) observed(o observed) {
	a.raw(`{"entityName":`)
	a.string(o.Name)
	a.raw(`,"addedObservations":`)
	a.strings(o.Observations)
	a.raw("}")
}

// text is the answer for people and models: JSON with indentation.
func (a *answer) text() (string, error) {
	var b bytes.Buffer
	b.Grow(len(a.b) + len(a.b)/4)
	if err := json.Indent(&b, a.b, "", "  "); err != nil {
		return "", fmt.Errorf("write the answer: %w", err)
	}
	return b.String(), nil
}

// result gives the answer as text, and as structured content under a key, or as
// it is where the key is empty.
func (a *answer) result(key string) (*mcp.CallToolResult, error) {
	text, err := a.text()
	if err != nil {
		return nil, err
	}
	structured := a.b
	if key != "" {
		structured = fmt.Appendf(nil, `{"%s":%s}`, key, a.b)
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: text}},
		StructuredContent: json.RawMessage(structured),
	}, nil
}

// done is the answer of what has nothing to show.
func done(message string) *mcp.CallToolResult {
	var a answer
	a.raw(`{"success":true,"message":`)
	a.string(message)
	a.raw("}")
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: message}},
		StructuredContent: json.RawMessage(a.b),
	}
}
