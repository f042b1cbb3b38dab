// Package nativetest holds a native server against the reference server it stands in for:
// it connects the official client to both, and compares what they list and answer.
package nativetest

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SameTools checks that both servers have the same tools with the same input
// and output schemas and the same annotations.
//
// Left out of the comparison: the order of tools, tool titles and
// descriptions, and in schemas title, description, $schema,
// additionalProperties and the order of required. A $ref is replaced by what it
// refers to.
func SameTools(t *testing.T, got, want *mcp.ClientSession) {
	t.Helper()
	type tool struct {
		Name        string
		Input       any
		Output      any
		Annotations *mcp.ToolAnnotations
	}
	list := func(cs *mcp.ClientSession) map[string]tool {
		out := map[string]tool{}
		for tl, err := range cs.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatalf("list tools: %v", err)
			}
			out[tl.Name] = tool{tl.Name, Schema(tl.InputSchema), Schema(tl.OutputSchema), tl.Annotations}
		}
		return out
	}
	g, w := list(got), list(want)
	if len(w) == 0 {
		t.Fatal("the reference server has no tools")
	}
	sameKeys(t, "tools", g, w)
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if a, ok := g[name]; ok {
			Same(t, "tool "+name, a, w[name])
		}
	}
}

// SamePrompts checks that both servers have the same prompts with the same
// arguments. Titles and descriptions are left out.
func SamePrompts(t *testing.T, got, want *mcp.ClientSession) {
	t.Helper()
	list := func(cs *mcp.ClientSession) map[string][]mcp.PromptArgument {
		out := map[string][]mcp.PromptArgument{}
		for p, err := range cs.Prompts(t.Context(), nil) {
			if err != nil {
				t.Fatalf("list prompts: %v", err)
			}
			args := []mcp.PromptArgument{}
			for _, a := range p.Arguments {
				args = append(args, mcp.PromptArgument{Name: a.Name, Required: a.Required})
			}
			out[p.Name] = args
		}
		return out
	}
	g, w := list(got), list(want)
	sameKeys(t, "prompts", g, w)
	Same(t, "prompts", g, w)
}

// Same checks that two values are the same JSON.
func Same(t *testing.T, what string, got, want any) {
	t.Helper()
	g, w := canonical(t, got), canonical(t, want)
	if g != w {
		t.Errorf("%s differs:\n got %s\nwant %s", what, g, w)
	}
}

func canonical(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var loose any
	if err := json.Unmarshal(data, &loose); err != nil {
		t.Fatal(err)
	}
	if data, err = json.MarshalIndent(loose, "", " "); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func sameKeys[V any](t *testing.T, what string, got, want map[string]V) {
	t.Helper()
	g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))
	if !slices.Equal(g, w) {
		t.Errorf("%s: got %v, want %v", what, g, w)
	}
}

// Schema returns a JSON schema without what servers may word or write
// differently; see [SameTools].
func Schema(v any) any {
	defs := map[string]any{}
	if m, ok := v.(map[string]any); ok {
		if d, ok := m["$defs"].(map[string]any); ok {
			defs = d
		}
	}
	return bare(v, defs)
}

func bare(v any, defs map[string]any) any {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			const prefix = "#/$defs/"
			if len(ref) > len(prefix) {
				return bare(defs[ref[len(prefix):]], defs)
			}
		}
		out := map[string]any{}
		for k, e := range v {
			switch k {
			case "title", "description", "$schema", "additionalProperties", "$defs":
			case "properties":
				// Here keys are names and not keywords. No properties at all is
				// the same as none.
				props := map[string]any{}
				for name, p := range e.(map[string]any) {
					props[name] = bare(p, defs)
				}
				if len(props) > 0 {
					out[k] = props
				}
			case "required":
				r := slices.Clone(e.([]any))
				slices.SortFunc(r, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) })
				if len(r) > 0 {
					out[k] = r
				}
			default:
				out[k] = bare(e, defs)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = bare(e, defs)
		}
		return out
	}
	return v
}

// Text returns the text of all text blocks of a result, joined.
func Text(res *mcp.CallToolResult) string {
	var s string
	for _, c := range res.Content {
		if tc, ok := c.(*mcp.TextContent); ok {
			s += tc.Text
		}
	}
	return s
}

// Call calls a tool and fails the test when the call itself fails.
func Call(t testing.TB, cs *mcp.ClientSession, name string, args any) *mcp.CallToolResult {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("call %s: %v", name, err)
	}
	return res
}
