package rlm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
)

const instructions = `A Python kernel that keeps its variables from call to call. Put large inputs into variables with rlm_load, which reads a file without showing it to you, look at them in parts with rlm_exec and rlm_get, and keep results in variables. The kernel has no network.`

// A tool is one of the server's, by its name after the prefix.
type tool struct {
	name, title, description string
	schema                   map[string]any
	hints                    mcp.ToolAnnotations
	run                      func(s *server, ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error)
}

func property(kind, description string) map[string]any {
	return map[string]any{"type": kind, "description": description}
}

func object(properties map[string]any, required ...string) map[string]any {
	o := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		o["required"] = required
	}
	return o
}

var no = new(bool)

var tools = []tool{
	{
		name: "exec", title: "Run Python",
		description: "Runs Python code in a kernel whose variables stay. Returns what it prints and the value of a last expression; figures of matplotlib as images. `await` works at the top level. Long outputs are cut: all of it is in the variable `_output`, the last value in `_`.",
		schema: object(map[string]any{
			"code":    property("string", "Python code, of one line or many"),
			"timeout": map[string]any{"type": "number", "description": "Seconds after which the code is interrupted; variables stay", "default": defaultTimeout.Seconds(), "exclusiveMinimum": 0, "maximum": mostTimeout.Seconds()},
		}, "code"),
		hints: mcp.ToolAnnotations{OpenWorldHint: no},
		run:   (*server).exec,
	},
	{
		name: "load", title: "Load a file",
		description: "Reads one file of this machine into a variable of the kernel, without showing it to you: text as str, anything else as bytes.",
		schema: object(map[string]any{
			"path":     property("string", "Path of the file; no patterns"),
			"var_name": property("string", "Name of the variable"),
		}, "path", "var_name"),
		hints: mcp.ToolAnnotations{DestructiveHint: no, IdempotentHint: true, OpenWorldHint: no},
		run:   (*server).load,
	},
	{
		name: "get", title: "Get a value",
		description: "Returns a variable as JSON, or as Python shows it. With a query, a Python expression that runs in the kernel, returns the value of that: `rlm_get(name=\"src\", query=\"len(src)\")`.",
		schema: object(map[string]any{
			"name":  property("string", "Name of the variable"),
			"query": property("string", "A Python expression to evaluate instead"),
		}, "name"),
		hints: mcp.ToolAnnotations{DestructiveHint: no, OpenWorldHint: no}, // a query may change something
		run:   (*server).get,
	},
	{
		name: "vars", title: "List variables",
		description: "Lists the variables of the kernel, with their types and a short summary of each. Names that begin with `_` are left out.",
		schema:      object(map[string]any{}),
		hints:       mcp.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: no, IdempotentHint: true, OpenWorldHint: no},
		run:         (*server).vars,
	},
	{
		name: "sub_agent", title: "Have a sub-agent answer",
		description: "Has a language model work on a task with a copy of the kernel: it writes Python, sees what that prints, and ends with the outputs that the signature names. Give it what is too long or too laborious for you to read. Returns {result, trajectory, usage}.",
		schema: object(map[string]any{
			"signature":      property("string", "What it is given and what it must return, such as `log: str, question: str -> answer: str, lines: list[int]`; or `deep_reasoning` (context, query -> answer), `deep_reasoning_multi` (documents, query -> answer)"),
			"inputs":         property("object", "A value for each input. {\"$var\": \"NAME\"} stands for a variable of the kernel, which is then not copied through you"),
			"max_iterations": map[string]any{"type": "integer", "description": "How often it may write code", "default": defaultIterations, "minimum": 1, "maximum": mostIterations},
			"max_llm_calls":  map[string]any{"type": "integer", "description": "How often its code may ask a language model", "default": defaultQueries, "minimum": 1, "maximum": mostQueries},
			"share":          map[string]any{"type": "boolean", "description": "Let it work in the kernel itself, so that its variables stay there", "default": false},
		}, "signature", "inputs"),
		hints: mcp.ToolAnnotations{DestructiveHint: no},
		run:   (*server).subAgent,
	},
	{
		name: "usage", title: "Show the use of models",
		description: "Returns how many calls and tokens sub-agents and llm_query have used in this session, and what they cost.",
		schema:      object(map[string]any{"reset": map[string]any{"type": "boolean", "description": "Count from zero afterwards", "default": false}}),
		hints:       mcp.ToolAnnotations{DestructiveHint: no, OpenWorldHint: no},
		run:         (*server).usage,
	},
	{
		name: "reset", title: "Reset the kernel",
		description: "Restarts the kernel: all variables and imports are gone. It ends code that is running.",
		schema:      object(map[string]any{}),
		hints:       mcp.ToolAnnotations{IdempotentHint: true, OpenWorldHint: no},
		run:         (*server).reset,
	},
}

func (s *server) addTools(srv *mcp.Server, prefix string) {
	for _, t := range tools {
		hints := t.hints
		hints.Title = t.title
		srv.AddTool(&mcp.Tool{Name: prefix + t.name, Title: t.title, Description: t.description, InputSchema: t.schema, Annotations: &hints},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if s.kernel == nil {
					return nil, errors.New("there is no kernel behind this server")
				}
				err := t.check(req.Params.Arguments)
				if err == nil {
					err = s.due(ctx)
				}
				var res *mcp.CallToolResult
				if err == nil {
					res, err = t.run(s, ctx, req)
				}
				if err == nil {
					return s.noted(res), nil
				}
				if errors.Is(err, errEnded) || ctx.Err() != nil {
					// The driver knows why the kernel ended, and the link is about to
					// end too; a caller that has left needs no answer.
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return failure(err), nil
			})
	}
}

// note adds what is to be told once.
func (s *server) noted(res *mcp.CallToolResult) *mcp.CallToolResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.note != "" {
		res.Content = append(res.Content, &mcp.TextContent{Text: "[note] " + s.note})
		s.note = ""
	}
	return res
}

// check says what is wrong with the names of arguments.
func (t *tool) check(arguments json.RawMessage) error {
	var given map[string]json.RawMessage
	if len(arguments) > 0 && json.Unmarshal(arguments, &given) != nil {
		return invalid("the arguments must be an object")
	}
	known := t.schema["properties"].(map[string]any)
	for name := range given {
		if known[name] == nil {
			return invalid("%s has no argument %q; it has %s", t.name, name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	required, _ := t.schema["required"].([]string)
	for _, name := range required {
		if given[name] == nil {
			return invalid("the argument %s is missing", name)
		}
	}
	return nil
}

// arguments reads those of a call.
func arguments(req *mcp.CallToolRequest, into any) error {
	if err := json.Unmarshal(req.Params.Arguments, into); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			kind := map[reflect.Kind]string{reflect.Float64: "number", reflect.Int: "whole number", reflect.Bool: "boolean", reflect.Map: "map"}[wrong.Type.Kind()]
			return invalid("%s must be a %s, and is a %s", wrong.Field, cmp.Or(kind, "string"), wrong.Value)
		}
		return invalid("the arguments can't be read: %v", err)
	}
	return nil
}

// Bounds of the time that code may run.
const (
	defaultTimeout = 30 * time.Second
	mostTimeout    = 24 * time.Hour
	// askTimeout bounds what the kernel is asked besides: a repr may take long too.
	askTimeout = 30 * time.Second
)

func (s *server) get(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct {
		Name  string  `json:"name"`
		Query *string `json:"query"`
	}
	if err := arguments(req, &in); err != nil {
		return nil, err
	}
	ask := map[string]any{"op": "get", "name": in.Name}
	if in.Query != nil {
		ask["query"] = *in.Query
	}
	var out struct {
		Missing bool   `json:"missing"`
		Value   string `json:"value"`
		Length  int    `json:"length"`
	}
	switch err := s.request(ctx, req, ask, &out); {
	case err != nil:
		return nil, err
	case out.Missing:
		return nil, &api.Error{Kind: api.KindTool, Message: fmt.Sprintf("there is no variable %q; rlm_vars lists all", in.Name)}
	}
	return text(cutOf(out.Value, out.Length, s.set.Output, "ask for a part of it with query, such as "+in.Name+"[:1000]")), nil
}

func (s *server) vars(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var out struct {
		Vars []struct {
			Name, Type, Summary string
		} `json:"vars"`
		Count int `json:"count"`
	}
	if err := s.request(ctx, req, map[string]any{"op": "vars"}, &out); err != nil {
		return nil, err
	}
	if out.Count == 0 {
		return text("(no variables)"), nil
	}
	var b strings.Builder
	shown := 0
	for _, v := range out.Vars {
		line := fmt.Sprintf("%s: %s = %s\n", v.Name, v.Type, v.Summary)
		if weight(b.String())+weight(line) > s.set.Output {
			break
		}
		b.WriteString(line)
		shown++
	}
	if shown < out.Count {
		fmt.Fprintf(&b, "[... and %d more]\n", out.Count-shown)
	}
	return text(strings.TrimSuffix(b.String(), "\n")), nil
}

func (s *server) usage(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct {
		Reset bool `json:"reset"`
	}
	if err := arguments(req, &in); err != nil {
		return nil, err
	}
	out, err := json.Marshal(usageOf(s.models.usage(in.Reset)))
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(out)}}, StructuredContent: json.RawMessage(out)}, nil
}

func (s *server) reset(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	err := s.kernel.restart(ctx)
	if err == nil {
		err = s.ask1(ctx, map[string]any{"op": "forget"}, nil)
	}
	if err != nil {
		return nil, err
	}
	return text("Sandbox reset."), nil
}

// request asks the kernel something that is answered at once, or hangs.
func (s *server) request(ctx context.Context, req *mcp.CallToolRequest, ask map[string]any, into any) error {
	defer s.progress(ctx, req, nil)()
	done, err := s.do(ctx, askTimeout, ask, nil)
	if done == nil {
		return err
	}
	var failed struct {
		Interrupted bool    `json:"interrupted"`
		Error       *string `json:"error"`
	}
	switch err := json.Unmarshal(done, &failed); {
	case err != nil:
		return err
	case failed.Error != nil:
		return &api.Error{Kind: api.KindTool, Message: cut(*failed.Error, s.set.Output, "")}
	case failed.Interrupted && ctx.Err() != nil:
		return ctx.Err()
	case failed.Interrupted:
		return &api.Error{Kind: api.KindTimeout, Message: fmt.Sprintf("it took longer than %s and was interrupted, as where a value takes long to be shown; variables are kept", askTimeout)}
	}
	return json.Unmarshal(done, into)
}

// do asks the kernel for a caller. Where the variables were lost meanwhile the error
// says which.
func (s *server) do(ctx context.Context, timeout time.Duration, ask map[string]any, output func(string, bool)) (json.RawMessage, error) {
	done, restarted, err := s.kernel.do(ctx, timeout, ask, output)
	var gone *died
	switch {
	case restarted && ctx.Err() != nil:
		return nil, s.recover(ctx, "the code was cancelled and could not be interrupted, so the kernel was restarted")
	case restarted:
		return nil, s.recover(ctx, fmt.Sprintf("the code ran longer than %s and could not be interrupted, so the kernel was restarted", timeout))
	case errors.As(err, &gone):
		return nil, s.recover(ctx, gone.Error())
	case done != nil && bytes.HasPrefix(done, []byte(`{"unmet"`)):
		return nil, s.recover(ctx, "the kernel was restarted, and this did not run")
	}
	return done, err
}
