package upstream

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/tine-mcp/tine/internal/wire"
)

// paramHeaders knows which arguments of which tools are repeated as
// Mcp-Param-* headers over HTTP in the stateless era: what a tool's schema
// marks with x-mcp-header. It learns them from lists that pass, and from the
// server when that refuses a call for want of them, so that servers without
// any cost nothing. Where headers are sent it hides the tools whose marks are invalid.
type paramHeaders struct {
	mu      sync.Mutex
	tools   map[string][]paramHeader
	invalid map[string]string // why, by tool
	// whole says that a list was seen to its end; listed are tools that are known to
	// be in one although none was.
	whole  bool
	listed map[string]bool

	learning sync.Mutex // held while a list is read before a call
}

type paramHeader struct {
	path   []string // into arguments
	header string
}

// maxHiddenLines is how many hidden tools of one page are logged by name.
const maxHiddenLines = 100

// learn reads the server's tool list. It reports whether there is anything to
// send now.
func (h *paramHeaders) learn(ctx context.Context, c *Conn) bool {
	params := []byte("{}")
	for range maxPages {
		res, err := c.simple(ctx, wire.MethodListTools, params)
		if err != nil || res.Result == nil {
			return false
		}
		h.note(c, res.Result)
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

// note learns from one page of a tool list, and returns it without the tools that are
// hidden.
func (h *paramHeaders) note(c *Conn, result []byte) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	next, err := wire.Find(result, "nextCursor")
	h.whole = h.whole || err == nil && (!next.Ok() || string(next.Of(result)) == "null")
	if !bytes.Contains(result, headerMark) && len(h.tools)+len(h.invalid) == 0 {
		return result
	}
	at, err := wire.Find(result, "tools")
	if err != nil || !at.Ok() {
		return result
	}
	list := at.Of(result)
	items, err := wire.Items(list)
	if err != nil {
		return result
	}
	kept, fresh := make([][]byte, 0, len(items)), 0
	for _, it := range items {
		tool := it.Of(list)
		name, was := wire.FindString(tool, "name"), h.invalid[wire.FindString(tool, "name")]
		why := h.learnTool(c, name, tool)
		if why == "" {
			kept = append(kept, tool)
		} else if why != was {
			if fresh++; fresh <= maxHiddenLines && c.hidden != nil {
				c.hidden(name, why)
			}
		}
	}
	if fresh > maxHiddenLines {
		c.log.Warn("more tools are hidden: their x-mcp-header is invalid", "server", c.server, "tools", fresh-maxHiddenLines)
	}
	if len(kept) == len(items) {
		return result
	}
	with := slices.Concat([]byte{'['}, bytes.Join(kept, []byte{','}), []byte{']'})
	return wire.AppendSpliced(nil, result, []wire.Edit{{At: at, With: with}})
}

// learnTool notes what a tool marks. It returns why the tool is hidden; empty where it
// is not. h.mu is held.
func (h *paramHeaders) learnTool(c *Conn, name string, tool []byte) (why string) {
	if h.tools == nil {
		h.tools, h.invalid = make(map[string][]paramHeader), make(map[string]string)
	}
	delete(h.tools, name)
	delete(h.invalid, name)
	found, err := marksOf(tool)
	switch {
	case err != nil && c.mirrors():
		why = c.mask.excerpt([]byte(err.Error()))
		h.invalid[name] = why
	case err == nil && len(found) > 0:
		h.tools[name] = found
	}
	return why
}

// hides says why a tool can't be called; empty if it can. A tool that is in no known
// list is looked up in the server's list before its first call.
func (h *paramHeaders) hides(ctx context.Context, c *Conn, req *Request) string {
	h.mu.Lock()
	known := c.listed == nil || h.whole || h.listed[req.Name]
	h.mu.Unlock()
	if !known {
		h.look(ctx, c, req)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.invalid[req.Name]
}

func (h *paramHeaders) look(ctx context.Context, c *Conn, req *Request) {
	if c.listed(req.Who, req.Name) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.listed == nil {
			h.listed = make(map[string]bool)
		}
		h.listed[req.Name] = true
		return
	}
	h.learning.Lock()
	defer h.learning.Unlock()
	h.mu.Lock()
	whole := h.whole
	h.mu.Unlock()
	if whole {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	h.learn(ctx, c)
	h.mu.Lock()
	h.whole = true // also where it failed: without a known reason the tool is called
	h.mu.Unlock()
}

// changed forgets that a list was read to its end.
func (h *paramHeaders) changed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.whole, h.listed = false, nil
}

func (h *paramHeaders) of(tool string) []paramHeader {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tools[tool]
}

// set adds the headers of one call.
func (h *paramHeaders) set(header http.Header, req *Request) {
	for _, w := range h.of(req.Name) {
		if v, ok := argument(req.Params.Raw, w.path); ok {
			header[w.header] = []string{wire.EncodeHeader(v)}
		}
	}
}

// check compares a caller's headers with its arguments, if it sent any.
func (h *paramHeaders) check(header http.Header, req *Request) *wire.Error {
	if header == nil {
		return nil
	}
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
