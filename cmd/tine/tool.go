package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newToolsCmd(c *cli) *cobra.Command {
	var o toolsOptions
	cmd := &cobra.Command{
		Use:   "tools [SERVER]",
		Short: "List the tools of all servers, or of one",
		Long: `Lists the tools of the running gateway by the names that "tine call" and clients
of /mcp use. Servers whose tools can't be listed are named on standard error, with
the reason. With SERVER the command waits until that server has started, at most
as long as its connect_timeout.

--grep lists only tools whose name or description matches a regular expression,
ignoring case.

--session lists the tools of a session, by its id or a prefix of it.`,
		Example: `  tine tools
  tine tools files --schema
  tine tools --grep 'issue|ticket'
  tine tools --session 3f9a
  tine tools --json | jq -r '.tools[].name'`,
		Args:              upToOneArg,
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.server = args[0]
			}
			return c.listTools(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.schema, "schema", false, "print full descriptions and input schemas")
	f.StringVar(&o.grep, "grep", "", "only tools whose name or description matches this regular expression")
	f.StringVar(&o.session, "session", "", "list the tools of this session")
	c.completeFlag(cmd, "session", c.completeSessionFlag)
	c.completeFlag(cmd, "grep", cobra.NoFileCompletions)
	return cmd
}

// toolsOptions say which tools are listed, and how.
type toolsOptions struct {
	server, session, grep string
	schema                bool
}

func (c *cli) listTools(ctx context.Context, o toolsOptions) error {
	pattern, err := regexp.Compile("(?i)" + o.grep)
	if err != nil {
		return usagef("--grep %q is no regular expression: %s; write \\ before a character to take it literally", o.grep, wrongPattern(err))
	}
	g, err := c.connect()
	if err != nil {
		return err
	}
	server, session := o.server, o.session
	if session != "" {
		if session, err = findSession(ctx, g, session); err != nil {
			return err
		}
	}
	list, err := c.toolsOf(ctx, g, session, server)
	if err != nil {
		if server != "" {
			err = c.unknownServer(ctx, g, server, err)
		}
		return mendSession(err)
	}
	all := len(list.Tools)
	list.Tools = slices.DeleteFunc(list.Tools, func(t api.Tool) bool {
		return !pattern.MatchString(t.Name) && !pattern.MatchString(t.Description)
	})
	switch {
	case c.flags.json:
		if err := c.printJSON(list); err != nil {
			return err
		}
	case len(list.Tools) == 0 && all > 0:
		c.say("none of %s matches %q", count(all, "tool"), o.grep)
	case o.schema:
		for i, t := range list.Tools {
			if i > 0 {
				fmt.Fprintln(c.stdout)
			}
			c.printTool(t)
		}
	default:
		listing(list.Tools, nil, func(t api.Tool) []cell { return []cell{{t.Name, bold}, {firstLine(t.Description), ""}} }).print(c)
	}
	for _, m := range list.Missing {
		c.say("left out: server %q: %s", m.Server, oneLine(m.Reason))
	}
	// All requested tools are missing: that is a failure and not an empty list.
	if server != "" && all == 0 && len(list.Missing) > 0 {
		return exitStatus(exitFailed)
	}
	return nil
}

func (c *cli) printTool(t api.Tool) {
	fmt.Fprintln(c.stdout, c.paint(bold, visible(oneLine(t.Name), c.outTerminal)))
	for line := range strings.Lines(strings.TrimSpace(t.Description)) {
		fmt.Fprintln(c.stdout, strings.TrimRight("  "+visible(strings.TrimRight(line, "\r\n"), c.outTerminal), " "))
	}
	if len(t.InputSchema) > 0 {
		fmt.Fprintln(c.stdout, "  "+visible(indent(t.InputSchema, "  "), c.outTerminal))
	}
}

// wrongPattern is the fault of a regular expression.
func wrongPattern(err error) string {
	var wrong *syntax.Error
	if errors.As(err, &wrong) {
		return string(wrong.Code)
	}
	return err.Error()
}

// firstLine is the first line of a text that is not blank.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return oneLine(line)
}

// toolSchema is the input schema of a tool, read only as far as the types of its
// arguments need. The server checks arguments: a schema that is not understood here
// never prevents a call.
type toolSchema struct {
	of   string // whose arguments it describes, such as tool NAME
	root schemaNode
}

// schemaNode is a JSON Schema as far as it says what a value may be.
type schemaNode struct {
	Ref        string                     `json:"$ref"`
	Type       typeList                   `json:"type"`
	Enum       []json.RawMessage          `json:"enum"`
	Const      json.RawMessage            `json:"const"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	OneOf      []json.RawMessage          `json:"oneOf"`
	AllOf      []json.RawMessage          `json:"allOf"`
	Properties map[string]json.RawMessage `json:"properties"`
	Additional json.RawMessage            `json:"additionalProperties"`
	Defs       map[string]json.RawMessage `json:"$defs"`
	OldDefs    map[string]json.RawMessage `json:"definitions"`
}

// typeList is a type, or a list of them.
type typeList []string

func (t *typeList) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		if one != "" {
			*t = typeList{one}
		}
		return nil
	}
	var many []string
	if json.Unmarshal(raw, &many) == nil {
		*t = many
	}
	return nil // anything else says nothing
}

// parseNode reads a schema. An unreadable one is empty.
func parseNode(raw json.RawMessage) schemaNode {
	var n schemaNode
	if err := json.Unmarshal(raw, &n); err != nil {
		return schemaNode{}
	}
	return n
}

func newToolSchema(of string, raw json.RawMessage) toolSchema {
	return toolSchema{of: of, root: parseNode(raw)}
}

// names lists the declared arguments in order.
func (s toolSchema) names() []string {
	var names []string
	for name := range s.root.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// undeclared returns a remark on an argument that the schema does not name, empty
// if it does or allows others; forbidden is whether it forbids others.
func (s toolSchema) undeclared(key string) (remark string, forbidden bool) {
	if _, ok := s.root.Properties[key]; ok {
		return "", false
	}
	others := string(bytes.TrimSpace(s.root.Additional))
	forbidden = others == "false"
	if !forbidden && (others != "" || len(s.root.Properties) == 0) {
		return "", false
	}
	remark = s.of + " declares no argument " + string(quote(key))
	names := s.names()
	hint := didYouMean(key, names)
	switch {
	case hint != "":
	case len(names) == 0:
		hint = "; it takes none"
	default:
		hint = "; it has " + strings.Join(names, ", ")
	}
	return remark + hint, forbidden
}

// want is the set of values that a schema allows.
type want struct {
	types []string
	enum  []json.RawMessage
	// closed is whether nothing but the members of enum will do.
	closed bool
}

// property finds the values that are allowed for an argument.
func (s toolSchema) property(key string) want {
	raw, ok := s.root.Properties[key]
	if !ok {
		raw = s.root.Additional
	}
	var w want
	// References may be circular, and unions may nest without end.
	budget := 200
	w.closed = s.collect(raw, &w, &budget)
	return w
}

// collect adds what a schema allows and reports whether it enumerates it.
func (s toolSchema) collect(raw json.RawMessage, w *want, budget *int) (enumerated bool) {
	if *budget--; *budget < 0 {
		return false
	}
	n := parseNode(raw)
	for _, t := range n.Type {
		if !slices.Contains(w.types, t) {
			w.types = append(w.types, t)
		}
	}
	w.enum = append(w.enum, n.Enum...)
	if len(n.Const) > 0 {
		w.enum = append(w.enum, n.Const)
	}
	enumerated = len(n.Enum) > 0 || len(n.Const) > 0
	if n.Ref != "" && s.collect(s.resolve(n.Ref), w, budget) {
		enumerated = true
	}
	for _, sub := range n.AllOf {
		if s.collect(sub, w, budget) {
			enumerated = true
		}
	}
	for _, union := range [][]json.RawMessage{n.AnyOf, n.OneOf} {
		all := len(union) > 0
		for _, sub := range union {
			null := slices.Equal(parseNode(sub).Type, typeList{"null"})
			if !s.collect(sub, w, budget) && !null {
				all = false
			}
		}
		enumerated = enumerated || all && len(w.enum) > 0
	}
	return enumerated
}

// resolve follows a reference to the schema's own definitions.
func (s toolSchema) resolve(ref string) json.RawMessage {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	if name, ok := strings.CutPrefix(ref, "#/$defs/"); ok {
		return s.root.Defs[unescape.Replace(name)]
	}
	if name, ok := strings.CutPrefix(ref, "#/definitions/"); ok {
		return s.root.OldDefs[unescape.Replace(name)]
	}
	return nil
}
