package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// A colour is text in JSON.
type colour int

func (c colour) MarshalText() ([]byte, error) { return []byte([]string{"red", "green"}[c]), nil }

func (c *colour) UnmarshalText(text []byte) error {
	switch string(text) {
	case "red":
		*c = 0
	case "green":
		*c = 1
	default:
		return fmt.Errorf("%s is no colour", text)
	}
	return nil
}

// A point is a list in JSON.
type point struct{ X, Y int }

func (p point) MarshalJSON() ([]byte, error)     { return json.Marshal([]int{p.X, p.Y}) }
func (p *point) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &[]*int{&p.X, &p.Y}) }

// A sign writes itself only.
type sign bool

func (s sign) MarshalJSON() ([]byte, error) {
	return []byte(map[sign]string{true: "1", false: "-1"}[s]), nil
}

// written has fields that are not written as they are built.
type written struct {
	Number  json.Number            `json:"number"`
	Raw     json.RawMessage        `json:"raw"`
	RawTo   *json.RawMessage       `json:"rawTo"`
	Bytes   []byte                 `json:"bytes"`
	Quoted  int64                  `json:"quoted,string"`
	Colour  colour                 `json:"colour" enum:"red,green" default:"green"`
	Colours []colour               `json:"colours" enum:"red,green"`
	Point   point                  `json:"point"`
	Points  map[string]*point      `json:"points"`
	Big     *big.Int               `json:"big"`
	Time    time.Time              `json:"time"`
	Addr    netip.Addr             `json:"addr"`
	Deep    []struct{ B [][]byte } `json:"deep"`
}

// TestWrittenTypes has types that read and write themselves go there and back, bound
// and not, with the schema of what they are in JSON.
func TestWrittenTypes(t *testing.T) {
	n := node.Func("echo", "", func(_ context.Context, in written) (written, error) { return in, nil })
	kinds := map[string]string{
		"number": "number", "raw": "", "rawTo": "", "bytes": "null or string", "quoted": "string", "colour": "string",
		"colours": "null or array", "point": "", "points": "object", "big": "null or integer", "time": "string", "addr": "string",
	}
	for i, schema := range []any{n.Tool().InputSchema, n.Tool().OutputSchema} {
		for name, want := range kinds {
			if name == "points" && i == 1 {
				want = "null or object" // as a nil map is written
			}
			p := schema.(*jsonschema.Schema).Properties[name]
			if got := p.Type + strings.Join(p.Types, " or "); got != want {
				t.Errorf("%s has type %s, want %s", name, got, want)
			}
		}
	}
	raw := json.RawMessage(`{"a":[1.10]}`)
	want := written{
		Number: "12345678901234567890.5", Raw: raw, RawTo: &raw, Bytes: []byte{0, 255}, Quoted: 9007199254740993, Colour: 1,
		Colours: []colour{0, 1}, Point: point{1, 2}, Points: map[string]*point{"a": {3, 4}}, Big: new(big.Int).Lsh(big.NewInt(1), 100),
		Time: time.Unix(1, 2).UTC(), Addr: netip.MustParseAddr("::1"), Deep: []struct{ B [][]byte }{{[][]byte{{1}}}},
	}
	s := connect(t, node.HTTP(serve(t, n)+"/mcp"), nil)
	for what, n := range map[string]*node.Node{"own": n, "consumed": get(t, s, "echo")} {
		got, err := node.Call[written, written](t.Context(), n, want)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
		args := fields(t, marshal(t, want))
		delete(args, "colour")
		res, err := node.Call[map[string]json.RawMessage, written](t.Context(), n, args)
		if err != nil || res.Colour != 1 {
			t.Errorf("%s: the default: %v, %v", what, res.Colour, err)
		}
		args["colours"] = json.RawMessage(`["blue"]`)
		if _, err := node.Call[map[string]json.RawMessage, written](t.Context(), n, args); !errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), "enum") {
			t.Errorf("%s: another enum: %v", what, err)
		}
	}
}

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fields(t *testing.T, object json.RawMessage) (all map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(object, &all); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	return all
}

// TestBindWritten binds types to schemas of another server.
func TestBindWritten(t *testing.T) {
	takes := func(kind string) *node.Node {
		schema := fmt.Sprintf(`{"type":"object","properties":{"v":{"type":%q}},"required":["v"]}`, kind)
		return node.New(&mcp.Tool{Name: kind, InputSchema: json.RawMessage(schema)}, func(_ context.Context, args json.RawMessage) (*node.Result, error) {
			return node.NewResult(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(args)}}})
		})
	}
	check := func(kind string, call func(*node.Node) (string, error), want string) {
		t.Helper()
		got, err := call(takes(kind))
		if want == "" && !errors.Is(err, node.ErrNotSent) || want != "" && (err != nil || got != want) {
			t.Errorf("%s: %s, %v; want %s", kind, got, err, want)
		}
	}
	check("number", of(json.Number("1.10")), `{"v":1.10}`)
	check("string", of(json.Number("1")), "")
	check("string", of(colour(1)), `{"v":"green"}`)
	check("number", of(colour(1)), "")
	check("array", of(point{1, 2}), `{"v":[1,2]}`)
	check("integer", of(sign(true)), `{"v":1}`)
	check("string", of([]byte("a")), `{"v":"YQ=="}`)
	check("array", of([]byte("a")), "")
	check("object", of(json.RawMessage(`{"a":1}`)), `{"v":{"a":1}}`)
	check("integer", of(big.NewInt(3)), `{"v":3}`)
	type text struct {
		V int `json:"v,string"`
	}
	check("string", func(n *node.Node) (string, error) { return node.Call[text, string](t.Context(), n, text{3}) }, `{"v":"3"}`)
	check("integer", func(n *node.Node) (string, error) { return node.Call[text, string](t.Context(), n, text{3}) }, "")
}

// TestBindIndirect binds to properties whose kinds stand elsewhere than in type.
func TestBindIndirect(t *testing.T) {
	for schema, tt := range map[string]struct {
		takes, refuses func(*node.Node) (string, error)
	}{
		`{"anyOf":[{"type":"string"},{"type":"null"}]}`:   {of("a"), of(5)},
		`{"oneOf":[{"type":"string"},{"enum":[1,null]}]}`: {of(5), of(true)},
		`{"enum":["a","b"]}`:                              {of("a"), of(5)},
		`{"const":3}`:                                     {of(3), of("a")},
		`{"$ref":"#/$defs/Ite~1m"}`:                       {of(map[string]int{}), of([]int{1})},
		`{"$ref":"#/$defs/loop"}`:                         {of(1), nil},
		`{"$ref":"elsewhere"}`:                            {of(1), nil},
		`{"anyOf":[{"minimum":1},{"type":"string"}]}`:     {of(1), nil},
	} {
		n := node.New(&mcp.Tool{Name: "n", InputSchema: json.RawMessage(`{"type":"object","properties":{"v":` + schema + `},"required":["v"],
			"$defs":{"Ite/m":{"type":"object"},"loop":{"$ref":"#/$defs/loop"}}}`)}, func(context.Context, json.RawMessage) (*node.Result, error) {
			return node.NewResult(&mcp.CallToolResult{})
		})
		if _, err := tt.takes(n); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
		if tt.refuses != nil {
			if _, err := tt.refuses(n); !errors.Is(err, node.ErrNotSent) {
				t.Errorf("%s: %v; want ErrNotSent", schema, err)
			}
		}
	}
}

// TestArgumentErrors says which argument is wrong, also where its type does not know its name.
func TestArgumentErrors(t *testing.T) {
	n := node.Func("n", "", func(context.Context, written) (string, error) { return "", nil })
	good := fields(t, marshal(t, written{Raw: json.RawMessage("1"), RawTo: new(json.RawMessage), Points: map[string]*point{}, Number: "1", Big: big.NewInt(1)}))
	for name, bad := range map[string]string{"bytes": `"?"`, "time": `"2020"`, "addr": `"x"`, "point": `{"a":1}`, "number": `null`, "quoted": `"x"`} {
		args := map[string]json.RawMessage{}
		for k, v := range good {
			args[k] = v
		}
		args[name] = json.RawMessage(bad)
		_, err := node.Call[map[string]json.RawMessage, string](t.Context(), n, args)
		if !errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "reflect") {
			t.Errorf("%s: %v", name, err)
		}
	}
	type cyclic struct {
		Fine int
		Next []*cyclic
	}
	panics(t, "field Next: ", func() { node.Func("x", "", func(context.Context, cyclic) (string, error) { return "", nil }) })
	type keyed struct{ Keyed map[int]string }
	panics(t, "field Keyed: ", func() { node.Func("x", "", func(context.Context, struct{}) (keyed, error) { return keyed{}, nil }) })
	refused(t, node.HTTP("127.0.0.1:80/mcp"), nil, "it must begin with http:// or https://")
}

// of is a call with v as the only argument.
func of[T any](v T) func(*node.Node) (string, error) {
	type in struct {
		V T `json:"v"`
	}
	return func(n *node.Node) (string, error) { return node.Call[in, string](context.Background(), n, in{v}) }
}

// TestDigits has numbers that a float can't hold.
func TestDigits(t *testing.T) {
	type numbers struct {
		Any    any            `json:"any,omitempty"`
		Map    map[string]any `json:"map,omitempty"`
		ID     int64          `json:"id" enum:"9007199254740993,-1" default:"9007199254740993"`
		Max    uint64         `json:"max" default:"18446744073709551615"`
		Exact  json.Number    `json:"exact,omitempty" enum:"1.50,12345678901234567"`
		Floats []float64      `json:"floats,omitempty"`
	}
	n := node.Func("n", "", func(_ context.Context, in numbers) (numbers, error) { return in, nil })
	s := connect(t, node.HTTP(serve(t, n)+"/mcp"), &node.Options{ProtocolVersion: "2025-11-25"})
	for args, want := range map[string]string{
		`{}`:                                   `{"id":9007199254740993,"max":18446744073709551615}`,
		`{"any":12345678901234567890}`:         `{"any":12345678901234567890,"id":9007199254740993,"max":18446744073709551615}`,
		`{"map":{"a":[1.10]},"id":-1}`:         `{"map":{"a":[1.10]},"id":-1,"max":18446744073709551615}`,
		`{"id":9007199254740992}`:              "enum",
		`{"id":-1.0,"max":1.8e1}`:              `{"id":-1,"max":18}`,
		`{"id":-10e-1,"max":0.00}`:             `{"id":-1,"max":0}`,
		`{"id":-1,"max":1e19}`:                 `{"id":-1,"max":10000000000000000000}`,
		`{"id":-1,"max":1e999999999}`:          "arguments",
		`{"id":-1,"max":1e-999999999}`:         "arguments",
		`{"id":-1,"max":-0.5}`:                 "arguments",
		`{"id":-1,"max":1e20}`:                 "arguments",
		`{"id":-1,"max":1,"any":1e400}`:        `{"any":1e400,"id":-1,"max":1}`,
		`{"id":-1,"max":1,"floats":[1e400]}`:   "arguments",
		`{"id":-1,"max":1,"exact":1.5}`:        `{"id":-1,"max":1,"exact":1.5}`,
		`{"id":-1,"max":1,"exact":1.6}`:        "enum",
		`{"id":-1,"max":1,"floats":[1e3,1]}`:   `{"id":-1,"max":1,"floats":[1000,1]}`,
		`{"id":-1,"max":1,"any":{"id":1.0}}`:   `{"any":{"id":1.0},"id":-1,"max":1}`,
		`{"id":-1,"max":12.00e-1,"any":"1.0"}`: "arguments",
	} {
		for what, n := range map[string]*node.Node{"own": n, "consumed": get(t, s, "n")} {
			res, err := n.Call(t.Context(), json.RawMessage(args))
			switch {
			case err != nil:
				t.Errorf("%s, %s: %v", what, args, err)
			case strings.HasPrefix(want, "{") && field(t, res.Raw, "structuredContent") != want, !strings.HasPrefix(want, "{") && (res.Err() == nil || !strings.Contains(res.Text(), want)):
				t.Errorf("%s, %s: %s, want %s", what, args, res.Raw, want)
			}
		}
	}
	out, err := node.Call[any, map[string]any](t.Context(), get(t, s, "n"), map[string]any{"any": json.Number("9007199254740993")})
	if err != nil || out["any"] != json.Number("9007199254740993") {
		t.Error(out, err)
	}
	panics(t, "more than 64 bits", func() {
		node.Func("x", "", func(_ context.Context, in struct {
			N json.Number `json:"n" enum:"123456789012345678901"`
		}) (string, error) {
			return "", nil
		})
	})
}

// TestOutputs has results that are what their schemas promise, or errors.
func TestOutputs(t *testing.T) {
	call := func(n *node.Node) (string, error) {
		s := connect(t, node.HTTP(serve(t, n)+"/mcp"), nil)
		session, err := s.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "n"})
		if err != nil {
			return "", err
		}
		_, resolved, err := node.Resolved(get(t, s, "n").Tool().OutputSchema)
		if err != nil {
			t.Fatal(err)
		}
		return string(marshal(t, res.StructuredContent)), resolved.Validate(res.StructuredContent)
	}
	type plain struct {
		Tags map[string]int              `json:"tags"`
		Deep []map[string]map[string]any `json:"deep"`
		Mode string                      `json:"mode" enum:"fast,slow"`
		N    *int                        `json:"n"`
	}
	returns := func(v plain) *node.Node {
		return node.Func("n", "", func(context.Context, struct{}) (plain, error) { return v, nil })
	}
	if got, err := call(returns(plain{Mode: "slow", Deep: []map[string]map[string]any{nil, {"a": nil}}})); err != nil || got != `{"deep":[null,{"a":null}],"mode":"slow","n":null,"tags":null}` {
		t.Error(got, err)
	}
	if _, err := call(returns(plain{})); err == nil || !strings.Contains(err.Error(), "enum") {
		t.Error(err)
	}
	if got, err := call(node.Func("n", "", func(context.Context, struct{}) (map[string]int, error) { return nil, nil })); err != nil || got != `{}` {
		t.Error(got, err)
	}
	none := node.Func("n", "", func(context.Context, struct{}) (*plain, error) { return nil, nil })
	if got, err := call(none); err == nil || !strings.Contains(err.Error(), "no result") {
		t.Error(got, err)
	}
	text := node.Func("n", "", func(context.Context, struct{}) (*int, error) { return nil, nil })
	if got, err := node.Call[struct{}, int](t.Context(), text, struct{}{}); err == nil {
		t.Errorf("null is %d", got)
	}
	if got, err := node.Call[struct{}, *int](t.Context(), text, struct{}{}); err != nil || got != nil {
		t.Errorf("null is %v, %v", got, err)
	}
}

// TestOwnSchema changes the schema of a function, which then holds.
func TestOwnSchema(t *testing.T) {
	type in struct {
		N int `json:"n"`
	}
	double := func(_ context.Context, in in) (int, error) { return 2 * in.N, nil }
	limit := func(t *mcp.Tool) {
		t.InputSchema.(*jsonschema.Schema).Properties["n"].Maximum = jsonschema.Ptr(10.0)
	}
	other := func(t *mcp.Tool) {
		t.InputSchema = map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer", "maximum": 10, "default": 4}}}
	}
	for _, change := range []func(*mcp.Tool){limit, other} {
		n := node.Func("double", "", double, change)
		if out, err := node.Call[in, int](t.Context(), n, in{3}); err != nil || out != 6 {
			t.Error(out, err)
		}
		if _, err := node.Call[in, int](t.Context(), n, in{11}); !errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), "maximum") {
			t.Error(err)
		}
	}
	if out, err := node.Call[any, int](t.Context(), node.Func("double", "", double, other), nil); err != nil || out != 8 {
		t.Error(out, err)
	}
	panics(t, "input", func() {
		node.Func("double", "", double, func(t *mcp.Tool) { t.InputSchema = json.RawMessage(`{"type":3}`) })
	})
	// A struct that reads itself takes any object.
	type loose struct{ reader }
	n := node.Func("loose", "", func(_ context.Context, in loose) (string, error) { return string(in.raw), nil })
	if out, err := node.Call[json.RawMessage, string](t.Context(), n, json.RawMessage(`{"a":1}`)); err != nil || out != `{"a":1}` {
		t.Error(out, err)
	}
}

type reader struct{ raw json.RawMessage }

func (r *reader) UnmarshalJSON(data []byte) error {
	r.raw = append(r.raw[:0], data...)
	return nil
}
