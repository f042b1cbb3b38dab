package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

func nothing(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{}, nil
}

func tool(name string) *mcp.Tool {
	return &mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}
}

// sdkServer serves a server of the SDK in one era.
func sdkServer(t *testing.T, server *mcp.Server, stateless bool) string {
	return listen(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless})).URL
}

func names(s node.Source) string {
	var all []string
	for _, n := range s.Nodes() {
		all = append(all, n.Tool().Name)
	}
	return strings.Join(all, " ")
}

func TestChangingList(t *testing.T) {
	for _, stateless := range []bool{true, false} {
		t.Run(fmt.Sprint("stateless=", stateless), func(t *testing.T) {
			server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
			server.AddTool(tool("one"), nothing)
			s := connect(t, node.HTTP(sdkServer(t, server, stateless)), nil)
			// The proxy and its clients follow.
			merged, err := node.Merge(map[string]node.Source{"s": s})
			if err != nil {
				t.Fatal(err)
			}
			url := serve(t, merged)
			second := connect(t, node.HTTP(url+"/mcp"), nil)
			third := connect(t, node.HTTP(url+"/sse"), nil)
			fourth := connect(t, node.HTTP(url+"/mcp"), &node.Options{ProtocolVersion: "2025-11-25"})
			kept := get(t, s, "one")
			server.AddTool(tool("two"), nothing)
			eventually(t, "the second tool", func() bool { return names(s) == "one two" })
			if get(t, s, "one") != kept {
				t.Error("a node that did not change is another one")
			}
			for _, c := range []*node.Server{second, third, fourth} {
				eventually(t, "the second tool through the proxy", func() bool { return names(c) == "s__one s__two" })
				if _, err := get(t, c, "s__two").Call(t.Context(), nil); err != nil {
					t.Error(err)
				}
			}
			server.RemoveTools("one")
			for _, c := range []*node.Server{second, third, fourth} {
				eventually(t, "the end of the first tool", func() bool { return names(c) == "s__two" })
			}
		})
	}
}

// loud has the tools of a server under other names.
type loud struct{ *node.Server }

func (l loud) Nodes() (all []*node.Node) {
	for _, n := range l.Server.Nodes() {
		t := n.Tool()
		t.Name = strings.ToUpper(t.Name)
		all = append(all, node.New(t, func(ctx context.Context, args json.RawMessage) (*node.Result, error) { return n.Call(ctx, args) }))
	}
	return all
}

// TestChangingSource follows the list through a source around a server.
func TestChangingSource(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
	server.AddTool(tool("one"), nothing)
	s := connect(t, node.HTTP(sdkServer(t, server, true)), nil)
	second := connect(t, node.HTTP(serve(t, loud{s})+"/mcp"), nil)
	server.AddTool(tool("two"), nothing)
	eventually(t, "the second tool", func() bool { return names(second) == "ONE TWO" })
	if _, err := get(t, second, "TWO").Call(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestThousandTools(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, &mcp.ServerOptions{PageSize: 37})
	for i := range 1000 {
		server.AddTool(tool(fmt.Sprintf("tool%03d", i)), nothing)
	}
	first := connect(t, node.HTTP(sdkServer(t, server, true)), nil)
	second := connect(t, node.HTTP(serve(t, first)+"/mcp"), nil)
	for _, s := range []*node.Server{first, second} {
		all := s.Nodes()
		if len(all) != 1000 || all[0].Tool().Name != "tool000" || all[999].Tool().Name != "tool999" {
			t.Errorf("%d tools", len(all))
		}
		if _, err := all[999].Call(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
}

func TestNoTools(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
	server.AddPrompt(&mcp.Prompt{Name: "p"}, nil)
	s := connect(t, node.HTTP(sdkServer(t, server, false)), nil)
	if len(s.Nodes()) != 0 {
		t.Error(names(s))
	}
}

type everything struct {
	Name   string            `json:"name" jsonschema:"wie heißt es? 名前"`
	Unit   string            `json:"unit" enum:"celsius,fahrenheit,开" default:"celsius"`
	Level  int               `json:"level" enum:"1,2,3" default:"2"`
	Days   int               `json:"days,omitempty"`
	Ratio  *float64          `json:"ratio,omitempty" default:"0.5"`
	Tags   []string          `json:"tags,omitempty" enum:"a,b"`
	Nested nested            `json:"nested"`
	Maybe  *nested           `json:"maybe,omitempty"`
	Many   []nested          `json:"many,omitempty"`
	ByName map[string]nested `json:"byName,omitempty"`
	Ümlaut bool              `json:"ümlaut,omitempty"`
	ID     int64             `json:"id,omitempty"`
}

type nested struct {
	Kind string `json:"kind" enum:"x,y"`
	Size int    `json:"size" default:"7"`
}

func echo(_ context.Context, in everything) (everything, error) { return in, nil }

func TestSchemas(t *testing.T) {
	n := node.Func("echo", "Écho.", echo, func(t *mcp.Tool) { t.Annotations = &mcp.ToolAnnotations{ReadOnlyHint: true} })
	want := listed(t, n, "echo")
	for _, part := range []string{`"enum":["celsius","fahrenheit","开"]`, `"default":"celsius"`, `"enum":[1,2,3]`, `"required":["name","nested"]`,
		`"required":["kind"]`, `"readOnlyHint":true`, "wie heißt es? 名前", `"items":{"type":"string","enum":["a","b"]}`} {
		if !strings.Contains(string(want), part) {
			t.Errorf("no %s in %s", part, want)
		}
	}
	for _, version := range []string{"", "2025-11-25"} {
		first := connect(t, node.HTTP(serve(t, n)+"/mcp"), &node.Options{ProtocolVersion: version})
		second := connect(t, node.HTTP(serve(t, first)+"/sse"), nil)
		for _, s := range []*node.Server{first, second} {
			if got := listed(t, s, "echo"); !reflect.DeepEqual(decoded(t, got), decoded(t, want)) {
				t.Errorf("%s\nwant %s", got, want)
			}
			out, err := node.Call[map[string]any, everything](t.Context(), get(t, s, "echo"),
				map[string]any{"name": "ß", "id": json.Number("9007199254740993"), "nested": map[string]any{"kind": "y"}})
			if err != nil {
				t.Fatal(err)
			}
			if out.ID != 9007199254740993 || out.Unit != "celsius" || out.Level != 2 || out.Nested != (nested{"y", 7}) || out.Ratio == nil || *out.Ratio != 0.5 || out.Days != 0 {
				t.Errorf("%+v", out)
			}
			for _, bad := range []string{`{}`, `{"name":1,"nested":{"kind":"x"}}`, `{"name":"a","nested":{"kind":"z"}}`, `{"name":"a","nested":{"kind":"x"},"unit":"kelvin"}`, `{"name":"a","nested":{"kind":"x"},"tags":["c"]}`} {
				res, err := get(t, s, "echo").Call(t.Context(), json.RawMessage(bad))
				if err != nil || res.Err() == nil {
					t.Errorf("%s: %v, %v", bad, res, err)
				}
			}
		}
	}
}

func decoded(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
