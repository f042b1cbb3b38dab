package gateway

import (
	"bytes"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/wire"
)

// editTool gives a tool of a list its outside name and description; nil when
// it is not to be seen.
func (s *shape) editTool(tool []byte, t *table, merge bool, who identity.Principal) []byte {
	var edits []wire.Edit
	at, err := wire.Find(tool, "name")
	if err != nil || !at.Ok() {
		return nil
	}
	own, ok := wire.Unquote(at.Of(tool))
	if !ok {
		return nil
	}
	name, ok := s.outside(own)
	if !ok || !who.MayCall(s.entry.Base(), name) {
		return nil
	}
	if merge {
		if name = t.name(s, name); s.bare && t.shadows(name) != nil {
			return nil
		}
	}
	if name != own {
		edits = append(edits, wire.Edit{At: at, With: wire.Quote(name)})
	}
	edits = append(edits, s.describe(tool, own, merge)...)
	if len(edits) == 0 {
		return tool
	}
	return wire.AppendSpliced(make([]byte, 0, len(tool)+64), tool, edits)
}

// describe is the edit of a tool's description.
func (s *shape) describe(item []byte, own string, merge bool) []wire.Edit {
	text, replaced := s.entry.Tools.Describe[own]
	merge = merge && !s.bare
	if !merge && !replaced {
		return nil
	}
	at, err := wire.Find(item, "description")
	if err != nil {
		return nil
	}
	if replaced {
		if merge {
			text = "[" + s.entry.Title + "] " + text
		}
		if at.Ok() {
			return []wire.Edit{{At: at, With: wire.Quote(text)}}
		}
		return []wire.Edit{wire.InsertMember(item, 0, "description", wire.Quote(text))}
	}
	if !at.Ok() || item[at.Start] != '"' {
		return nil
	}
	return []wire.Edit{{At: wire.Span{Start: at.Start + 1, End: at.Start + 1}, With: []byte(s.prefix)}}
}

// editPrompt puts the server before a prompt's name and description.
func (s *shape) editPrompt(item []byte, t *table) []byte {
	at, err := wire.Find(item, "name")
	if err != nil || !at.Ok() {
		return nil
	}
	own, ok := wire.Unquote(at.Of(item))
	if !ok {
		return nil
	}
	edits := []wire.Edit{{At: at, With: wire.Quote(t.name(s, own))}}
	if d, err := wire.Find(item, "description"); err == nil && d.Ok() && item[d.Start] == '"' && !s.bare {
		edits = append(edits, wire.Edit{At: wire.Span{Start: d.Start + 1, End: d.Start + 1}, With: []byte(s.prefix)})
	}
	return wire.AppendSpliced(make([]byte, 0, len(item)+64), item, edits)
}

// editURI puts the server before a URI in a list's item.
func (s *shape) editURI(item []byte, key string) []byte {
	at, err := wire.Find(item, key)
	if err != nil || !at.Ok() {
		return nil
	}
	uri, ok := wire.Unquote(at.Of(item))
	if !ok {
		return nil
	}
	return wire.AppendSpliced(make([]byte, 0, len(item)+64), item,
		[]wire.Edit{{At: at, With: wire.Quote(outURI(s.entry.ID, uri))}})
}

var resourceMark = []byte(`"resource`)

// prefixURIs puts the server before every resource URI in a result that goes
// out through the merged view, so that what a client reads there can be asked
// for there.
func prefixURIs(method, server string, result []byte) []byte {
	var list []string
	switch method {
	case wire.MethodReadResource:
		list = []string{"contents"}
	case wire.MethodCallTool:
		list = []string{"content"}
	case wire.MethodGetPrompt:
		list = []string{"messages"}
	default:
		return result
	}
	if method != wire.MethodReadResource && !bytes.Contains(result, resourceMark) {
		return result
	}
	at, err := wire.Find(result, list...)
	if err != nil || !at.Ok() || result[at.Start] != '[' {
		return result
	}
	items, err := wire.Items(at.Of(result))
	if err != nil {
		return result
	}
	var edits []wire.Edit
	uri := func(base int, item []byte, path ...string) {
		u, err := wire.Find(item, path...)
		if err != nil || !u.Ok() {
			return
		}
		if s, ok := wire.Unquote(u.Of(item)); ok {
			edits = append(edits, wire.Edit{
				At:   wire.Span{Start: base + u.Start, End: base + u.End},
				With: wire.Quote(outURI(server, s)),
			})
		}
	}
	content := func(base int, item []byte) {
		switch wire.FindString(item, "type") {
		case "resource_link":
			uri(base, item, "uri")
		case "resource":
			uri(base, item, "resource", "uri")
		}
	}
	for _, it := range items {
		base := at.Start + it.Start
		item := result[base : at.Start+it.End]
		switch method {
		case wire.MethodReadResource:
			uri(base, item, "uri")
		case wire.MethodCallTool:
			content(base, item)
		case wire.MethodGetPrompt:
			if c, err := wire.Find(item, "content"); err == nil && c.Ok() && item[c.Start] == '{' {
				content(base+c.Start, c.Of(item))
			}
		}
	}
	if len(edits) == 0 {
		return result
	}
	return wire.AppendSpliced(make([]byte, 0, len(result)+len(edits)*32), result, edits)
}
