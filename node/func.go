package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Func makes a node of a function. In must be a struct or a map. Its schema is
// inferred as by [mcp.AddTool], and struct tags add to it:
//
//	type Query struct {
//		City string `json:"city" jsonschema:"the name of a city"`      // description
//		Unit string `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
//		Days int    `json:"days,omitempty"`                           // optional
//	}
//
// A property with a default is optional. The values of enum and default are text
// where the field is a string and JSON otherwise; the enum of a slice is that of
// its elements.
//
// Arguments are validated, and missing ones get their defaults, before f is
// called. Integers keep all their digits. An error of f is a result that says so;
// an [jsonrpc.Error] is an error of the protocol instead.
//
// An Out that is a struct or a map is the structured content of the result, with a
// schema, and its text as JSON besides. A string is text, and any other value is
// text as JSON. An Out of *[Result] or *[mcp.CallToolResult] is the result itself.
//
// The functions in more may change the tool before it is used: its title, its
// annotations. Func panics if a schema can't be inferred, a tag is wrong, or f is nil.
func Func[In, Out any](name, description string, f func(context.Context, In) (Out, error), more ...func(*mcp.Tool)) *Node {
	if f == nil {
		panic(fmt.Sprintf("node.Func: tool %q has no function", name))
	}
	tool := &mcp.Tool{Name: name, Description: description}
	input, err := newInput(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("node.Func: tool %q: input: %v", name, err))
	}
	tool.InputSchema = input.schema
	output, err := newOutput(reflect.TypeFor[Out]())
	if err != nil {
		panic(fmt.Sprintf("node.Func: tool %q: output: %v", name, err))
	}
	if output.schema != nil {
		tool.OutputSchema = output.schema
	}
	for _, change := range more {
		change(tool)
	}
	return New(tool, func(ctx context.Context, args json.RawMessage) (*Result, error) {
		var in In
		if err := input.decode(args, &in); err != nil {
			return failed(err)
		}
		out, err := f(withoutForward(ctx), in)
		if err != nil {
			var wire *jsonrpc.Error
			if errors.As(err, &wire) {
				return nil, &callError{ErrTool, name, "", err}
			}
			return failed(err)
		}
		res, err := output.encode(out)
		if err != nil {
			return nil, &callError{ErrTool, name, "", err}
		}
		return res, nil
	})
}

// failed is the result of a tool that failed.
func failed(err error) (*Result, error) {
	var r mcp.CallToolResult
	r.SetError(err)
	return NewResult(&r)
}

// An input reads the arguments of a function.
type input struct {
	schema   *jsonschema.Schema
	resolved *jsonschema.Resolved
	defaults bool
}

func newInput(t reflect.Type) (*input, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	in := &input{schema: &jsonschema.Schema{Type: "object"}}
	if t.Kind() != reflect.Interface {
		var err error
		if in.schema, err = jsonschema.ForType(t, nil); err != nil {
			return nil, err
		}
		if in.schema.Type != "object" {
			return nil, fmt.Errorf("%v is not a struct or a map", t)
		}
		if in.defaults, err = applyTags(t, in.schema); err != nil {
			return nil, err
		}
	}
	var err error
	in.resolved, err = in.schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	return in, err
}

func (in *input) decode(args json.RawMessage, to any) error {
	if in.defaults {
		d := json.NewDecoder(bytes.NewReader(args))
		d.UseNumber()
		var exact any
		err := d.Decode(&exact)
		if err == nil {
			fill(exact, in.schema)
			args, err = json.Marshal(exact)
		}
		if err != nil {
			return fmt.Errorf("arguments: %w", err)
		}
	}
	// The validator takes json.Number for a string, so that it sees floats, which
	// are exact enough for it.
	var values map[string]any
	if err := json.Unmarshal(args, &values); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if err := in.resolved.Validate(values); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	if err := json.Unmarshal(args, to); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

// fill adds the defaults of s to v. Unlike the validator's own function it makes no
// objects to put defaults in, and keeps the digits of numbers.
func fill(v any, s *jsonschema.Schema) {
	if s == nil {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			fill(item, s.Items)
		}
	case map[string]any:
		for name, p := range s.Properties {
			if _, ok := v[name]; !ok && p.Default != nil {
				v[name] = p.Default
			}
		}
		for name, item := range v {
			p := s.Properties[name]
			if p == nil {
				p = s.AdditionalProperties
			}
			fill(item, p)
		}
	}
}

// An output writes the results of a function.
type output struct {
	schema *jsonschema.Schema
	zero   any // what a nil pointer or map is written as
}

func newOutput(t reflect.Type) (*output, error) {
	out := new(output)
	if t == reflect.TypeFor[*Result]() || t == reflect.TypeFor[*mcp.CallToolResult]() {
		return out, nil
	}
	elem := t
	for elem.Kind() == reflect.Pointer {
		elem = elem.Elem()
	}
	if k := elem.Kind(); k != reflect.Struct && k != reflect.Map {
		return out, nil
	}
	schema, err := jsonschema.ForType(elem, nil)
	if err != nil {
		return nil, err
	}
	if schema.Type != "object" {
		return out, nil // such as a time, which is a string
	}
	if _, err := applyTags(elem, schema); err != nil {
		return nil, err
	}
	out.schema = schema
	out.zero = reflect.New(elem).Elem().Interface()
	if elem.Kind() == reflect.Map {
		out.zero = struct{}{}
	}
	return out, nil
}

func (o *output) encode(v any) (*Result, error) {
	switch v := v.(type) {
	case *Result:
		if v == nil {
			return nil, errNoResult
		}
		return v, nil
	case *mcp.CallToolResult:
		if v == nil {
			return nil, errNoResult
		}
		return NewResult(v)
	case string:
		return NewResult(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: v}}})
	}
	data, err := json.Marshal(v)
	if err == nil && string(data) == "null" && o.schema != nil {
		data, err = json.Marshal(o.zero)
	}
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(data)}}}
	if data[0] == '{' {
		r.StructuredContent = json.RawMessage(data)
	}
	return NewResult(r)
}
