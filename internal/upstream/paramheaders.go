package upstream

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/tine-mcp/tine/internal/wire"
)

// paramHeaders knows which arguments of which tools a modern HTTP server wants
// repeated as Mcp-Param-* headers. It learns them when the server first
// refuses a call for want of them, so that servers without any cost nothing.
type paramHeaders struct {
	mu    sync.Mutex
	tools map[string][]paramHeader
}

type paramHeader struct {
	path   []string // into arguments
	header string
}

// learn reads the server's tool list. It reports whether there is anything to
// send now.
func (h *paramHeaders) learn(ctx context.Context, c *Conn) bool {
	tools := make(map[string][]paramHeader)
	params := []byte("{}")
	for range maxPages {
		res, err := c.simple(ctx, wire.MethodListTools, params)
		if err != nil || res.Result == nil {
			return false
		}
		at, err := wire.Find(res.Result, "tools")
		if err != nil || !at.Ok() {
			return false
		}
		list := at.Of(res.Result)
		items, err := wire.Items(list)
		if err != nil {
			return false
		}
		for _, it := range items {
			tool := it.Of(list)
			if bytes.Contains(tool, []byte("x-mcp-header")) {
				if found := ParamHeaders(tool); len(found) > 0 {
					tools[wire.FindString(tool, "name")] = found
				}
			}
		}
		cursor, _ := wire.Find(res.Result, "nextCursor")
		if !cursor.Ok() || string(cursor.Of(res.Result)) == "null" {
			break
		}
		params = append(append([]byte(`{"cursor":`), cursor.Of(res.Result)...), '}')
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tools = tools
	return len(tools) > 0
}

// maxPages bounds how many pages of a list are read.
const maxPages = 1000

// ParamHeaders finds the x-mcp-header annotations in a tool's input schema.
func ParamHeaders(tool []byte) []paramHeader {
	at, err := wire.Find(tool, "inputSchema", "properties")
	if err != nil || !at.Ok() {
		return nil
	}
	return schemaHeaders(at.Of(tool), nil)
}

func schemaHeaders(props []byte, prefix []string) []paramHeader {
	var out []paramHeader
	_ = wire.Members(props, func(key string, val wire.Span) error {
		path := append(append([]string(nil), prefix...), key)
		schema := val.Of(props)
		if name := wire.FindString(schema, "x-mcp-header"); name != "" {
			out = append(out, paramHeader{path: path, header: http.CanonicalHeaderKey(wire.HeaderParam + name)})
		}
		if inner, err := wire.Find(schema, "properties"); err == nil && inner.Ok() && len(path) < 16 {
			out = append(out, schemaHeaders(inner.Of(schema), path)...)
		}
		return nil
	})
	return out
}

// set adds the headers of one call.
func (h *paramHeaders) set(header http.Header, req *Request) {
	h.mu.Lock()
	wanted := h.tools[req.Name]
	h.mu.Unlock()
	for _, w := range wanted {
		if v, ok := ArgumentHeader(req.Params.Raw, w.path); ok {
			header[w.header] = []string{v}
		}
	}
}

// ArgumentHeader renders the argument at path as a header's value. It reports
// false where there is none to send.
func ArgumentHeader(params []byte, path []string) (string, bool) {
	at, err := wire.Find(params, append([]string{"arguments"}, path...)...)
	if err != nil || !at.Ok() {
		return "", false
	}
	raw := at.Of(params)
	switch raw[0] {
	case '"':
		s, ok := wire.Unquote(raw)
		return wire.EncodeHeader(s), ok
	case 't', 'f':
		return string(raw), true
	case '{', '[', 'n':
		return "", false
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	const safe = 1<<53 - 1
	if err != nil || n != float64(int64(n)) || n > safe || n < -safe {
		return "", false
	}
	return strings.TrimSuffix(strconv.FormatInt(int64(n), 10), ".0"), true
}
