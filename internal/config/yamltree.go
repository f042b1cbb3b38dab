package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a YAML file. Aliases make a small file large, and the parser takes
// time that grows with the square of a map's keys and of the depth, so tokens
// and depth are bounded before it runs and values while aliases are expanded.
const (
	maxYAMLBytes  = 1 << 20
	maxYAMLTokens = 30_000
	maxYAMLNodes  = 100_000
)

// readYAML reads one YAML document into a tree, with aliases and merge keys
// expanded.
func readYAML(data []byte) (t *tree, err error) {
	if len(data) > maxYAMLBytes {
		return nil, &syntaxError{Pos{}, fmt.Sprintf("the file is larger than 1 MiB (%d bytes)", len(data))}
	}
	// The bytes come from outside and the parser is not ours: should it stumble
	// over them, that is a file that can't be read and not the end of a gateway
	// that is reloading it.
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, &syntaxError{Pos{}, fmt.Sprintf("the YAML parser failed: %v", p)}
		}
	}()
	// The lexer counts a carriage return at the end of a comment as a line.
	tokens := lexer.Tokenize(strings.ReplaceAll(string(data), "\r\n", "\n"))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, yamlError(err)
	}
	r := &yamlReader{out: &tree{root: &Node{Shape: ShapeNull, Pos: Pos{1, 1}}}, anchors: map[string]ast.Node{}, open: map[string]bool{}}
	seen := false
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if _, ok := doc.Body.(*ast.DirectiveNode); ok {
			continue
		}
		if seen {
			return nil, &syntaxError{place(doc.Body), "a second YAML document; a config is one document, remove the --- before this"}
		}
		seen = true
		if r.out.root, err = r.value(doc.Body, 0); err != nil {
			return nil, err
		}
	}
	return r.out, nil
}

func checkTokens(tokens token.Tokens) error {
	if len(tokens) > maxYAMLTokens {
		return &syntaxError{Pos{}, fmt.Sprintf("the file has more than %d words and marks; split it over several gateways", maxYAMLTokens)}
	}
	flow, line, entries := 0, 0, 0
	for _, tk := range tokens {
		if tk.Position.Line != line {
			line, entries = tk.Position.Line, 0
		}
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			// Each of these on one line may open a level of its own.
			entries++
		}
		if flow > maxDepth || entries > maxDepth && flow == 0 {
			return &syntaxError{tokenPos(tk), fmt.Sprintf("nested deeper than %d levels", maxDepth)}
		}
	}
	return nil
}

func yamlError(err error) error {
	var e yaml.Error
	if errors.As(err, &e) {
		at := Pos{}
		if tk := e.GetToken(); tk != nil {
			at = tokenPos(tk)
		}
		return &syntaxError{at, "not valid YAML: " + e.GetMessage()}
	}
	return &syntaxError{Pos{}, "not valid YAML: " + err.Error()}
}

func tokenPos(tk *token.Token) Pos {
	if tk == nil || tk.Position == nil {
		return Pos{}
	}
	return Pos{tk.Position.Line, tk.Position.Column}
}

// place is where a value starts. A block map's own token is the colon after its
// first key, so its first key says it better.
func place(n ast.Node) Pos {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return place(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return place(n.Key)
	}
	return tokenPos(n.GetToken())
}

type yamlReader struct {
	out     *tree
	anchors map[string]ast.Node
	open    map[string]bool // anchors that are being expanded
	nodes   int
}

func (r *yamlReader) value(n ast.Node, depth int) (*Node, error) {
	if n == nil {
		return &Node{Shape: ShapeNull}, nil
	}
	at := place(n)
	if r.nodes++; r.nodes > maxYAMLNodes {
		return nil, &syntaxError{at, fmt.Sprintf("more than %d values after aliases are expanded", maxYAMLNodes)}
	}
	if depth > maxDepth {
		return nil, &syntaxError{at, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	switch n := n.(type) {
	case *ast.NullNode:
		text := "null"
		if n.Token != nil && n.Token.Value == "~" {
			text = "~"
		}
		return &Node{Shape: ShapeNull, Pos: at, Text: text}, nil
	case *ast.BoolNode:
		return &Node{Shape: ShapeBool, Pos: at, Text: n.Token.Value}, nil
	case *ast.IntegerNode:
		return &Node{Shape: ShapeInt, Pos: at, Text: n.Token.Value}, nil
	case *ast.FloatNode:
		return &Node{Shape: ShapeFloat, Pos: at, Text: n.Token.Value}, nil
	case *ast.InfinityNode:
		return &Node{Shape: ShapeFloat, Pos: at, Text: n.Token.Value}, nil
	case *ast.NanNode:
		return &Node{Shape: ShapeFloat, Pos: at, Text: n.Token.Value}, nil
	case *ast.StringNode:
		return &Node{Shape: ShapeString, Pos: at, Text: n.Value}, nil
	case *ast.LiteralNode:
		return &Node{Shape: ShapeString, Pos: at, Text: n.Value.Value}, nil
	case *ast.MappingNode:
		return r.mapping(at, n.Values, depth)
	case *ast.MappingValueNode:
		return r.mapping(at, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		list := &Node{Shape: ShapeList, Pos: at}
		for _, v := range n.Values {
			item, err := r.value(v, depth+1)
			if err != nil {
				return nil, err
			}
			list.Items = append(list.Items, item)
		}
		return list, nil
	case *ast.AnchorNode:
		r.anchors[n.Name.GetToken().Value] = n.Value
		return r.value(n.Value, depth+1)
	case *ast.AliasNode:
		return r.alias(n, at, depth)
	case *ast.TagNode:
		return r.tagged(n, at, depth)
	default:
		return nil, &syntaxError{at, fmt.Sprintf("%s can't stand here", n.Type())}
	}
}

func (r *yamlReader) alias(n *ast.AliasNode, at Pos, depth int) (*Node, error) {
	name := n.Value.GetToken().Value
	target, ok := r.anchors[name]
	if !ok {
		return nil, &syntaxError{at, fmt.Sprintf("alias *%s names no anchor before it; write &%s at the value it should repeat", name, name)}
	}
	if r.open[name] {
		return nil, &syntaxError{at, fmt.Sprintf("alias *%s stands inside its own anchor", name)}
	}
	r.open[name] = true
	defer delete(r.open, name)
	// A new copy each time: placeholders are resolved in the nodes, and each must
	// be resolved exactly once.
	return r.value(target, depth+1)
}

func (r *yamlReader) tagged(n *ast.TagNode, at Pos, depth int) (*Node, error) {
	v, err := r.value(n.Value, depth+1)
	if err != nil {
		return nil, err
	}
	switch tag := n.Start.Value; tag {
	case "!!str", "!":
		if !v.Scalar() {
			return nil, &syntaxError{at, "!!str stands before " + v.Shape.String()}
		}
		if v.Shape == ShapeNull {
			v.Text = ""
		}
		v.Shape = ShapeString
		return v, nil
	case "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq":
		return v, nil
	default:
		return nil, &syntaxError{at, fmt.Sprintf("tag %s is not known here; remove it", Clip(tag))}
	}
}

func (r *yamlReader) mapping(at Pos, values []*ast.MappingValueNode, depth int) (*Node, error) {
	m := r.out.newMap(at)
	var merged []*Node
	for _, v := range values {
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			from, err := r.merge(v.Value, depth)
			if err != nil {
				return nil, err
			}
			merged = append(merged, from...)
			continue
		}
		var name ast.Node = v.Key
		if k, ok := name.(*ast.MappingKeyNode); ok {
			name = k.Value
		}
		key, err := r.value(name, depth+1)
		if err != nil {
			return nil, err
		}
		if !key.Scalar() || key.Shape == ShapeNull {
			return nil, &syntaxError{key.Pos, "a key must be a plain name, not " + key.Shape.String()}
		}
		value, err := r.value(v.Value, depth+1)
		if err != nil {
			return nil, err
		}
		if value.Shape == ShapeNull {
			value.Pos = key.Pos // what is not there stands nowhere
		}
		m.add(Pair{Key: key.Text, KeyPos: key.Pos, Value: value})
	}
	// What a map says itself wins over what it merges, and the first merged one
	// over those after it.
	for _, from := range merged {
		for _, p := range from.Pairs {
			if _, ok := m.index[p.Key]; !ok {
				m.add(p)
			}
		}
	}
	return m.n, nil
}

func (r *yamlReader) merge(v ast.Node, depth int) ([]*Node, error) {
	from, err := r.value(v, depth+1)
	if err != nil {
		return nil, err
	}
	list := []*Node{from}
	if from.Shape == ShapeList {
		list = from.Items
	}
	for _, m := range list {
		if m.Shape != ShapeMap {
			return nil, &syntaxError{place(v), "<< merges maps, not " + m.Shape.String() + "; write <<: *name of an anchored map"}
		}
	}
	return list, nil
}
