package upstream

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/tine-mcp/tine/internal/wire"
)

// paramHeaders knows which arguments of which tools are repeated as
// Mcp-Param-* headers over HTTP in the stateless era: what a tool's schema
// marks with x-mcp-header. It learns them from lists that pass, and from the
// server when that refuses a call for want of them, so that servers without
// any cost nothing.
type paramHeaders struct {
	mu    sync.Mutex
	tools map[string][]paramHeader
}

type paramHeader struct {
	path   []string // into arguments
	header string
}

var headerMark = []byte("x-mcp-header")

// learn reads the server's tool list. It reports whether there is anything to
// send now.
func (h *paramHeaders) learn(ctx context.Context, c *Conn) bool {
	params := []byte("{}")
	for range maxPages {
		res, err := c.simple(ctx, wire.MethodListTools, params)
		if err != nil || res.Result == nil {
			return false
		}
		h.note(res.Result)
		cursor, _ := wire.Find(res.Result, "nextCursor")
		if !cursor.Ok() || string(cursor.Of(res.Result)) == "null" {
			break
		}
		params = append(append([]byte(`{"cursor":`), cursor.Of(res.Result)...), '}')
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tools) > 0
}

// note learns from one page of a tool list.
func (h *paramHeaders) note(result []byte) {
	if !bytes.Contains(result, headerMark) {
		return
	}
	at, err := wire.Find(result, "tools")
	if err != nil || !at.Ok() {
		return
	}
	list := at.Of(result)
	items, err := wire.Items(list)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tools == nil {
		h.tools = make(map[string][]paramHeader)
	}
	for _, it := range items {
		tool := it.Of(list)
		props, err := wire.Find(tool, "inputSchema", "properties")
		if err != nil || !props.Ok() {
			continue
		}
		name := wire.FindString(tool, "name")
		if found := schemaHeaders(props.Of(tool), nil); len(found) > 0 {
			h.tools[name] = found
		} else {
			delete(h.tools, name)
		}
	}
}

func (h *paramHeaders) of(tool string) []paramHeader {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tools[tool]
}

func schemaHeaders(props []byte, prefix []string) []paramHeader {
	var out []paramHeader
	_ = wire.Members(props, func(key string, val wire.Span) error {
		path := append(append([]string(nil), prefix...), key)
		schema := val.Of(props)
		// A mark that is no header's name is nothing that could be sent.
		if name := wire.FindString(schema, "x-mcp-header"); httpguts.ValidHeaderFieldName(name) {
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
	for _, w := range h.of(req.Name) {
		if v, ok := argument(req.Params.Raw, w.path); ok {
			header[w.header] = []string{wire.EncodeHeader(v)}
		}
	}
}

// check holds a caller's headers against its arguments.
func (h *paramHeaders) check(header http.Header, req *Request) *wire.Error {
	for _, w := range h.of(req.Name) {
		sent, there := header[w.header]
		want, ok := argument(req.Params.Raw, w.path)
		problem := ""
		switch {
		case !ok && there:
			problem = "is there for an argument that is not"
		case !ok:
			continue
		case !there:
			problem = "is missing"
		case len(sent) != 1:
			problem = "stands more than once"
		default:
			got, valid := wire.DecodeHeader(sent[0])
			if !valid {
				problem = "is not valid base64"
			} else if got != want && !sameNumber(got, want) {
				problem = "does not match the argument"
			}
		}
		if problem != "" {
			return &wire.Error{Code: wire.CodeHeaderMismatch, Message: fmt.Sprintf("Header mismatch: %s %s", w.header, problem)}
		}
	}
	return nil
}

func sameNumber(a, b string) bool {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err1 == nil && err2 == nil && x == y
}

// argument renders the argument at path as text. It reports false where there
// is none that a header could carry.
func argument(params []byte, path []string) (string, bool) {
	at, err := wire.Find(params, append([]string{"arguments"}, path...)...)
	if err != nil || !at.Ok() {
		return "", false
	}
	raw := at.Of(params)
	switch raw[0] {
	case '"':
		return wire.Unquote(raw)
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
	return strconv.FormatInt(int64(n), 10), true
}
