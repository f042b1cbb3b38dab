package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// jsonEditor changes a JSON text, with comments and trailing commas or without, where
// its values begin and end. What is added looks like what stands before it.
type jsonEditor struct {
	data   []byte // without a byte order mark
	nl     string // how its lines end
	unit   string // what a line is indented by, below another one
	spread bool   // lists have a line for each item
}

func newJSONEditor(data []byte, root *Node) jsonEditor {
	e := jsonEditor{data: data, nl: "\n", unit: "  "}
	if first, _, ok := bytes.Cut(data, []byte("\n")); ok && bytes.HasSuffix(first, []byte("\r")) {
		e.nl = "\r\n"
	}
	if root == nil {
		return e
	}
	for _, p := range root.Pairs {
		if indent := e.indentAt(p.keyAt); indent != "" && e.startsLine(p.keyAt) {
			e.unit = indent
			break
		}
	}
	short, long := e.lists(root)
	e.spread = long > short
	return e
}

// lists counts the lists on one line and those on several.
func (e jsonEditor) lists(n *Node) (short, long int) {
	if n.Shape == ShapeList && len(n.Items) > 0 {
		if bytes.Contains(e.data[n.start:n.end], []byte("\n")) {
			long++
		} else {
			short++
		}
	}
	add := func(n *Node) {
		s, l := e.lists(n)
		short, long = short+s, long+l
	}
	for _, item := range n.Items {
		add(item)
	}
	for _, p := range n.Pairs {
		add(p.Value)
	}
	return short, long
}

func (e *edit) addJSON(id string, entry *Node) ([]byte, error) {
	j := newJSONEditor(e.data, e.t.root)
	switch {
	case e.servers == nil:
		return j.insert(e.parent, e.key, MapNode(Pair{Key: id, Value: entry})), nil
	case e.servers.Shape != ShapeMap:
		return nil, e.byHand(fmt.Sprintf("%q in it is null", e.key))
	}
	return j.insert(e.servers, id, entry), nil
}

func (e *edit) removeJSON(at int) []byte {
	return newJSONEditor(e.data, e.t.root).remove(e.servers, at)
}

// insert puts a pair behind the last one of an object.
func (e jsonEditor) insert(object *Node, key string, value *Node) []byte {
	d := e.data
	if len(object.Pairs) == 0 {
		base, inner := e.indentAt(object.start), d[object.start+1:object.end-1]
		text := e.nl + base + e.unit + e.jsonPair(key, value, base+e.unit, e.unit)
		oneLine := !bytes.Contains(d, []byte("\n"))
		if oneLine {
			text = e.jsonPair(key, value, "", "")
		}
		if len(bytes.TrimSpace(inner)) > 0 { // a comment, which stays
			return slices.Concat(d[:object.start+1], []byte(text), d[object.start+1:])
		}
		if !oneLine {
			text += e.nl + base
		}
		return slices.Concat(d[:object.start+1], []byte(text), d[object.end-1:])
	}
	last := object.Pairs[0]
	for _, p := range object.Pairs { // one that stands twice is not where it was read
		if p.Value.end > last.Value.end {
			last = p
		}
	}
	end := last.Value.end
	comma, trailing := ",", ""
	from := end
	if at := skipJSON(d, end); at < len(d) && d[at] == ',' {
		comma, trailing, from = "", ",", at+1
	}
	indent := e.indentAt(last.keyAt)
	if !e.startsLine(last.keyAt) {
		text := comma + " " + e.jsonPair(key, value, "", "") + trailing
		return slices.Concat(d[:from], []byte(text), d[from:])
	}
	text := e.nl + indent + e.jsonPair(key, value, indent, e.unitIn(object, indent)) + trailing
	eol := e.lineStop(from)
	if len(bytes.TrimSpace(plainJSON(d)[from:eol])) > 0 { // the end of the object, for one
		return slices.Concat(d[:from], []byte(comma+text), d[from:])
	}
	return slices.Concat(d[:end], []byte(comma), d[end:eol], []byte(text), d[eol:])
}

// replace puts a value in place of another one of an object.
func (e jsonEditor) replace(object *Node, at int, value *Node) []byte {
	old := object.Pairs[at]
	text := e.jsonText(value, "", "")
	if e.startsLine(old.keyAt) {
		indent := e.indentAt(old.keyAt)
		text = e.jsonText(value, indent, e.unitIn(object, indent))
	}
	return slices.Concat(e.data[:old.Value.start], []byte(text), e.data[old.Value.end:])
}

// remove takes a pair out of an object. Comments beside it stay.
func (e jsonEditor) remove(object *Node, at int) []byte {
	d, gone := e.data, object.Pairs[at]
	if inner := slices.Concat(d[object.start+1:gone.keyAt], d[gone.Value.end:object.end-1]); len(bytes.Trim(inner, " \t\r\n,")) == 0 {
		return slices.Concat(d[:object.start+1], d[object.end-1:])
	}
	from, to, last := gone.keyAt, gone.Value.end, false
	if next := skipJSON(d, to); next < len(d) && d[next] == ',' {
		if len(bytes.TrimSpace(d[to:next])) == 0 {
			to = next + 1
		} else { // a comment stands between
			d = slices.Concat(d[:next], d[next+1:])
		}
	} else {
		// The last one: the comma before it goes, too.
		before := -1
		last = true
		for _, p := range object.Pairs {
			if p.Value.end <= from {
				before = max(before, p.Value.end)
			}
		}
		if comma := skipJSON(d, max(before, 0)); before >= 0 && comma < len(d) && d[comma] == ',' {
			d = slices.Concat(d[:comma], d[comma+1:])
			from, to = from-1, to-1
		}
	}
	// A line of its own goes as a whole.
	start := bytes.LastIndexByte(d[:from], '\n') + 1
	stop := len(d)
	if i := bytes.IndexByte(d[to:], '\n'); i >= 0 {
		stop = to + i + 1
	}
	switch {
	case start > 0 && len(bytes.TrimSpace(d[start:from])) == 0 && len(bytes.TrimSpace(d[to:stop])) == 0:
		from, to = start, stop
	case last && d[from-1] == ' ' && len(bytes.TrimSpace(d[start:from])) > 0:
		from--
	case !last && to < len(d) && d[to] == ' ':
		to++
	}
	return slices.Concat(d[:from], d[to:])
}

// skipJSON is where the next thing is that is neither space nor comment.
func skipJSON(data []byte, at int) int {
	for at < len(data) {
		rest := data[at:]
		switch {
		case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
			at++
		case bytes.HasPrefix(rest, []byte("//")):
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				return len(data)
			}
			at += i
		case bytes.HasPrefix(rest, []byte("/*")):
			i := bytes.Index(rest, []byte("*/"))
			if i < 0 {
				return len(data)
			}
			at += i + 2
		default:
			return at
		}
	}
	return at
}

func (e jsonEditor) lineStart(at int) int { return bytes.LastIndexByte(e.data[:at], '\n') + 1 }

// lineStop is where a line ends, before its line break.
func (e jsonEditor) lineStop(at int) int {
	stop := len(e.data)
	if i := bytes.IndexByte(e.data[at:], '\n'); i >= 0 {
		stop = at + i
	}
	return stop - (len(e.data[at:stop]) - len(bytes.TrimRight(e.data[at:stop], "\r")))
}

// startsLine reports whether nothing stands before a place on its line.
func (e jsonEditor) startsLine(at int) bool { return e.lineStart(at)+len(e.indentAt(at)) == at }

// unitIn is what the pairs of an object are indented by, below its end.
func (e jsonEditor) unitIn(object *Node, indent string) string {
	if unit, below := strings.CutPrefix(indent, e.indentAt(object.end-1)); below && unit != "" {
		return unit
	}
	return e.unit
}

// indentAt is the space at the beginning of a line.
func (e jsonEditor) indentAt(at int) string {
	line := e.data[e.lineStart(at):at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// jsonPair writes a key and its value: over several lines, or without a unit of
// indentation on one.
func (e jsonEditor) jsonPair(key string, value *Node, indent, unit string) string {
	return jsonQuote(key) + ": " + e.jsonText(value, indent, unit)
}

func (e jsonEditor) jsonText(n *Node, indent, unit string) string {
	switch n.Shape {
	case ShapeString:
		return jsonQuote(n.Text)
	case ShapeList:
		items := make([]string, len(n.Items))
		if e.spread && unit != "" && len(items) > 0 {
			inner := e.nl + indent + unit
			for i, item := range n.Items {
				items[i] = e.jsonText(item, indent+unit, unit)
			}
			return "[" + inner + strings.Join(items, ","+inner) + e.nl + indent + "]"
		}
		for i, item := range n.Items {
			items[i] = e.jsonText(item, "", "")
		}
		return "[" + strings.Join(items, ", ") + "]"
	case ShapeMap:
		pairs := make([]string, len(n.Pairs))
		for i, p := range n.Pairs {
			pairs[i] = e.jsonPair(p.Key, p.Value, indent+unit, unit)
		}
		if unit == "" || len(pairs) == 0 {
			return "{" + strings.Join(pairs, ", ") + "}"
		}
		inner := e.nl + indent + unit
		return "{" + inner + strings.Join(pairs, ","+inner) + e.nl + indent + "}"
	default:
		return n.Text
	}
}

func jsonQuote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always can be
	return strings.TrimSuffix(b.String(), "\n")
}
