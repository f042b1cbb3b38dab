package upstream

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/tine-mcp/tine/internal/wire"
)

// A tool's schema marks with x-mcp-header which arguments are repeated as headers. The
// protocol says what a mark may be and where it may stand, and has clients refuse tools
// with any other.

const (
	markKey      = "x-mcp-header"
	maxMarkDepth = 32
)

var headerMark = []byte(markKey)

// marksOf finds the marks of a tool. Its error says what is wrong with one of them.
func marksOf(tool []byte) ([]paramHeader, error) {
	at, err := wire.Find(tool, "inputSchema")
	if err != nil || !at.Ok() || !bytes.Contains(at.Of(tool), headerMark) {
		return nil, nil
	}
	var w markWalk
	err = w.visit(at.Of(tool), nil, true)
	return w.found, err
}

type markWalk struct{ found []paramHeader }

// visit walks a schema. A mark may stand only where the path to it goes through
// properties alone; reached says that it does so far.
func (w *markWalk) visit(schema []byte, path []string, reached bool) error {
	if schema[0] != '{' || !bytes.Contains(schema, headerMark) {
		return nil
	}
	if len(path) > maxMarkDepth {
		return w.fault(path[:3], "it is nested too deep")
	}
	return wire.Members(schema, func(key string, val wire.Span) error {
		sub := val.Of(schema)
		at := append(slices.Clone(path), key)
		switch key {
		case markKey:
			return w.mark(schema, sub, path, reached)
		case "properties":
			return w.each(sub, path, reached)
		case "patternProperties", "dependentSchemas", "$defs", "definitions":
			return w.each(sub, at, false)
		case "items", "prefixItems", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems",
			"propertyNames", "oneOf", "anyOf", "allOf", "not", "if", "then", "else":
			if sub[0] != '[' {
				return w.visit(sub, at, false)
			}
			items, err := wire.Items(sub)
			for _, it := range items {
				if err == nil {
					err = w.visit(it.Of(sub), at, false)
				}
			}
			return err
		}
		return nil
	})
}

// each visits schemas that have names.
func (w *markWalk) each(schemas []byte, path []string, reached bool) error {
	if schemas[0] != '{' {
		return nil
	}
	return wire.Members(schemas, func(name string, val wire.Span) error {
		return w.visit(val.Of(schemas), append(slices.Clone(path), name), reached)
	})
}

func (w *markWalk) mark(schema, value []byte, path []string, reached bool) error {
	name, _ := wire.Unquote(value)
	kind, err := wire.Find(schema, "type")
	switch {
	case err != nil:
		return w.fault(path, "%v", err)
	case len(path) == 0:
		return w.fault([]string{"the whole schema"}, "it is no parameter")
	case !reached:
		return w.fault(path, "parameters with headers are found by properties alone")
	case !httpguts.ValidHeaderFieldName(name):
		return w.fault(path, "%s is no name of a header", value)
	}
	switch t := string(kind.Of(schema)); t {
	case `"string"`, `"integer"`, `"boolean"`:
	default:
		return w.fault(path, "its type is %s, and must be string, integer or boolean", t)
	}
	header := http.CanonicalHeaderKey(wire.HeaderParam + name)
	if slices.ContainsFunc(w.found, func(p paramHeader) bool { return p.header == header }) {
		return w.fault(path, "another parameter has the header %s", name)
	}
	w.found = append(w.found, paramHeader{path: path, header: header})
	return nil
}

func (w *markWalk) fault(path []string, format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{strings.Join(path, ".")}, args...)...)
}
