package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

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
// where the property is a string and JSON otherwise; the enum of a slice is that of
// its elements. Types that read or write themselves, such as those with an
// UnmarshalJSON or a MarshalText, and the option "string" of a json tag have the
// schema of the JSON that they stand for.
//
// Arguments are validated, and missing ones get their defaults, before f is
// called. Numbers keep all their digits; one in an interface, such as a value of a
// map[string]any, is a [json.Number]. An error of f is a result that says so; a
// [jsonrpc.Error] is an error of the protocol instead. Of an error of a consumed node
// in it the log has all, and the result neither where its server is nor what it printed.
//
// An Out that is a struct or a map is the structured content of the result, with a
// schema that it must match, and its text as JSON besides; a nil pointer is an error.
// A string is text, and any other value is text as JSON. An Out of *[Result] or
// *[mcp.CallToolResult] is the result itself.
//
// The functions in more may change the tool before it is used: its title, its
// annotations, the schemas that arguments and results are validated against. Func panics
// if a schema can't be inferred, a tag is wrong, or f is nil.
func Func[In, Out any](name, description string, f func(context.Context, In) (Out, error), more ...func(*mcp.Tool)) *Node {
	if f == nil {
		panic(fmt.Sprintf("node.Func: tool %q has no function", name))
	}
	tool := &mcp.Tool{Name: name, Description: description}
	schema, err := inputSchema(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("node.Func: tool %q: input: %v", name, err))
	}
	tool.InputSchema = schema
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
	var input input
	if input.schema, input.resolved, err = resolved(tool.InputSchema); err == nil && input.schema.Type != "object" {
		err = errors.New("the schema must have the type object")
	}
	if err != nil {
		panic(fmt.Sprintf("node.Func: tool %q: input: %v", name, err))
	}
	if output.schema != nil {
		if output.schema, output.resolved, err = resolved(tool.OutputSchema); err != nil {
			panic(fmt.Sprintf("node.Func: tool %q: output: %v", name, err))
		}
	}
	return New(tool, func(ctx context.Context, args json.RawMessage) (*Result, error) {
		var in In
		if err := input.decode(args, &in); err != nil {
			return failed("arguments: " + err.Error())
		}
		out, err := f(withoutForward(ctx), in)
		if err != nil {
			if isProtocol(err) {
				return nil, &callError{ErrTool, name, "", err}
			}
			return failed(tell(name, err))
		}
		res, err := output.encode(out)
		if err != nil {
			return nil, &callError{ErrTool, name, "", err}
		}
		return res, nil
	})
}

// isProtocol reports whether an error is one of JSON-RPC for the caller. Those of a call
// of another tool that got no answer are not.
func isProtocol(err error) bool {
	var wire *jsonrpc.Error
	return errors.As(err, &wire) && !errors.Is(err, ErrNotSent) && !errors.Is(err, ErrOutcomeUnknown)
}

// failed is the result of a tool that failed.
func failed(why string) (*Result, error) {
	return NewResult(&mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: why}}})
}

// An input reads the arguments of a function.
type input struct {
	schema   *jsonschema.Schema
	resolved *jsonschema.Resolved
}

// inputSchema is the schema of arguments that are a t.
func inputSchema(t reflect.Type) (*jsonschema.Schema, error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	object := &jsonschema.Schema{Type: "object"}
	if t.Kind() == reflect.Interface {
		return object, nil
	}
	s, err := infer(t, reading, false)
	switch {
	case err != nil:
		return nil, err
	case s.Type == "" && s.Types == nil:
		return object, nil // it reads itself
	case s.Type != "object":
		return nil, fmt.Errorf("%v is not a struct or a map", t)
	}
	return s, applyTags(t, s)
}

func (in *input) decode(args json.RawMessage, to any) error {
	values, err := exact(args)
	if err != nil {
		return err
	}
	changed := settle(&values, in.schema)
	if err := in.resolved.Validate(natives(values)); err != nil {
		// The validator has no word for null.
		return errors.New(strings.ReplaceAll(err.Error(), "<invalid reflect.Value>", "null"))
	}
	if changed {
		if args, err = json.Marshal(values); err != nil {
			return err
		}
	}
	if err := decode(args, to); err != nil {
		return named(err, args, reflect.TypeOf(to).Elem(), in.schema)
	}
	return nil
}

// named adds to an error of decoding which property could not be decoded, where that is known
// and the error does not say it: types that read themselves don't know their names.
func named(err error, args json.RawMessage, t reflect.Type, s *jsonschema.Schema) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) || t.Kind() != reflect.Struct {
		return err
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(args, &values) != nil {
		return err
	}
	for name := range s.Properties {
		one, _ := json.Marshal(map[string]json.RawMessage{name: values[name]})
		if values[name] == nil {
			continue
		}
		if err := decode(one, reflect.New(t).Interface()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return err
}

// An output writes the results of a function.
type output struct {
	schema   *jsonschema.Schema
	resolved *jsonschema.Resolved
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
	schema, err := infer(elem, writing, false)
	if err != nil {
		return nil, err
	}
	if elem.Kind() == reflect.Map && slices.Contains(schema.Types, "object") {
		schema.Type, schema.Types = "object", nil // no map is an empty one
	}
	if schema.Type != "object" {
		return out, nil // such as a time, which is a string
	}
	if err := applyTags(elem, schema); err != nil {
		return nil, err
	}
	out.schema = schema
	return out, nil
}

// check says why data is not what the schema promises. Clients check it, too, and refuse
// the call.
func (o *output) check(data []byte) error {
	values, err := exact(data)
	if err == nil && values == nil {
		return errNoResult
	}
	if err == nil {
		err = o.resolved.Validate(natives(values))
	}
	return err
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
	if m := reflect.ValueOf(v); o.schema != nil && m.Kind() == reflect.Map && m.IsNil() {
		v = struct{}{}
	}
	data, err := json.Marshal(v)
	if err == nil && o.schema != nil {
		err = o.check(data)
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
