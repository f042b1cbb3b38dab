package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

// callOptions are the flags of tine call.
type callOptions struct {
	args    string
	out     string
	session string
	timeout time.Duration
}

func newCallCmd(c *cli) *cobra.Command {
	var o callOptions
	cmd := &cobra.Command{
		Use:   "call TOOL [KEY=VALUE]...",
		Short: "Call a tool and print its result",
		Long: `Calls a tool by its name in "tine tools" and prints the result.

Arguments:
  key=value     a value, converted to the type in the tool's schema: integer,
                number, boolean, or JSON for arrays and objects. Where the
                schema allows a string, the value is a string.
  key:=JSON     a JSON value, not converted
  key=@file     a value read from a file; @- reads standard input
  key:=@file    a JSON value read from a file
  --args JSON   all arguments as one JSON object, - reads standard input; pairs
                override its keys

--session names the session of the call, by its id or a prefix of it. Without it
the call runs in your default session, or in the session that the token is for.

Progress notifications of the server are shown on standard error.

Text is printed as it is, other content is summarized, and structured content is
printed if there is no text. --json prints the result exactly as the server sent
it. The exit code is 1 when the tool or the server failed, and 2 when the command
or its arguments were invalid.`,
		Example: `  tine call time__get_current_time timezone=Europe/Vienna
  tine call files__read_file path=/x limit:=10
  tine call files__write_file path=/x content=@notes.txt
  tine call --session 3f9a memory__read_graph
  echo '{"path": "/x"}' | tine call files__read_file --args - --json
  tine call everything__get-tiny-image --out tiny.png`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("call wants the name of a tool; see tine tools")
			}
			return nil
		},
		ValidArgsFunction: c.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd.Context(), args[0], args[1:], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.args, "args", "", "all arguments as one JSON object; - reads standard input")
	f.StringVarP(&o.out, "out", "o", "", "save images, audio and other binary content to this file, or the text if there is none")
	f.DurationVar(&o.timeout, "timeout", 0, "timeout of the call; 0 for the gateway's timeout")
	f.StringVar(&o.session, "session", "", "run the call in this session")
	c.completeFlag(cmd, "session", c.completeSessionFlag)
	return cmd
}

func (c *cli) call(ctx context.Context, tool string, rest []string, o callOptions) error {
	if o.timeout < 0 {
		return usagef("--timeout wants a time above 0, got %s", o.timeout)
	}
	pairs := make([]pair, 0, len(rest))
	for _, arg := range rest {
		p, err := parsePair(arg)
		if err != nil {
			return err
		}
		pairs = append(pairs, p)
	}
	open := c.openArgument()
	base := []byte(o.args)
	if o.args == "-" {
		var err error
		if base, err = open("-"); err != nil {
			return fmt.Errorf("--args: %w", err)
		}
		if len(base) == 0 {
			return usagef("--args -: standard input is empty")
		}
	}
	g, err := c.connect()
	if err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	if o.session != "" {
		if o.session, err = findSession(ctx, g, o.session); err != nil {
			return err
		}
	}
	var schema toolSchema
	// Raw JSON needs no schema, and finding it may start servers.
	known := slices.ContainsFunc(pairs, func(p pair) bool { return !p.raw })
	if known {
		if schema, err = c.findSchema(ctx, g, o.session, tool); err != nil {
			return err
		}
	}
	args, err := arguments(base, pairs, schema, open)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if remark, _ := schema.undeclared(p.key); remark != "" {
			c.say("note: %s", remark)
		}
	}
	var result json.RawMessage
	c.waitingFor(ctx, g, tool, "calling "+tool, false, func(tell func(api.CallProgress)) {
		result, err = g.CallWithProgress(ctx, o.session, tool, args, tell)
	})
	// A tool that failed may not exist: then say which there are. Many servers
	// answer with an error result.
	var unknown *usageError
	if !known && toolFailed(result, err) {
		_, ferr := c.findSchema(ctx, g, o.session, tool)
		errors.As(ferr, &unknown)
	}
	switch {
	case err != nil && unknown != nil:
		return unknown
	case err != nil:
		return g.explain(inSession(o.session, err))
	}
	err = c.printResult(result, o.out)
	if unknown != nil {
		c.say("tine: %s", c.ownAll(unknown.Error()))
	}
	return err
}

// toolFailed reports whether a call failed in the tool, or because there is none.
func toolFailed(result json.RawMessage, err error) bool {
	var ae *api.Error
	if errors.As(err, &ae) {
		return ae.Kind == api.KindInvalid || ae.Kind == api.KindTool
	}
	var r callResult
	return err == nil && json.Unmarshal(result, &r) == nil && r.IsError
}

// inSession adds the kind to the error of a call. If the session is missing, it adds
// what to do about that.
func inSession(session string, err error) error {
	var ae *api.Error
	if session != "" && errors.As(err, &ae) && (ae.Status == http.StatusNotFound || ae.Status == http.StatusGone) {
		return mendSession(err)
	}
	return withKind(err)
}

// findSchema finds a tool's schema. It asks only the server that the name suggests
// if possible, so that a call does not wait for the others.
func (c *cli) findSchema(ctx context.Context, g *gateway, session, tool string) (toolSchema, error) {
	servers, err := ask(ctx, g, g.Servers)
	if err != nil {
		return toolSchema{}, err
	}
	asked := []string{""}
	if s := ownerOf(tool, servers.Servers); s != "" {
		asked = []string{s, ""}
	}
	var last *api.ToolList
	for _, server := range asked {
		list, err := c.toolsOf(ctx, g, session, server)
		if err != nil {
			return toolSchema{}, inSession(session, err)
		}
		for _, same := range []func(a, b string) bool{
			func(a, b string) bool { return a == b },
			// A server may know both, as rlm does; the gateway decides.
			func(a, b string) bool { return underscored(a) == underscored(b) },
		} {
			for _, t := range list.Tools {
				if same(t.Name, tool) {
					return newToolSchema("tool "+tool, t.InputSchema), nil
				}
			}
		}
		for _, m := range list.Missing {
			if m.Server == asked[0] {
				return toolSchema{}, withKind(&api.Error{
					Kind: cmp.Or(m.Kind, api.KindInfrastructure), Server: m.Server,
					Message: fmt.Sprintf("server %q is not available: %s", m.Server, m.Reason),
				})
			}
		}
		last = list
	}
	var names []string
	for _, t := range last.Tools {
		names = append(names, t.Name)
	}
	msg := fmt.Sprintf("unknown tool %q%s; see tine tools", tool, didYouMean(tool, names))
	if asked[0] != "" {
		last.Missing = nil // the server that the name suggests has answered
	}
	for _, m := range last.Missing {
		msg += fmt.Sprintf("\n  left out: server %q: %s", m.Server, oneLine(m.Reason))
	}
	return toolSchema{}, usagef("%s", msg)
}

func underscored(tool string) string { return strings.ReplaceAll(tool, ".", "_") }

// toolsOf lists the tools of a session, or those of one server of it. It waits for
// that server to start, at most its connect_timeout.
func (c *cli) toolsOf(ctx context.Context, g *gateway, session, server string) (list *api.ToolList, err error) {
	if server == "" {
		return ask(ctx, g, func(ctx context.Context) (*api.ToolList, error) { return g.ToolsIn(ctx, session, "") })
	}
	what := fmt.Sprintf("waiting for server %q", server)
	c.waitingFor(ctx, g, server, what, true, func(func(api.CallProgress)) { list, err = g.ToolsIn(ctx, session, server) })
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("server %q has not answered yet: %w", server, err)
	}
	return list, g.explain(err)
}

// ownerOf guesses the server of a tool: the longest id that the name begins with.
// The gateway chooses the separator, so it is not looked for.
func ownerOf(tool string, servers []api.Server) string {
	owner := ""
	for _, s := range servers {
		if len(s.ID) > len(owner) && len(tool) > len(s.ID) && strings.HasPrefix(tool, s.ID) {
			owner = s.ID
		}
	}
	return owner
}

// callResult has the parts of a CallToolResult that are printed.
type callResult struct {
	Content    []json.RawMessage `json:"content"`
	Structured json.RawMessage   `json:"structuredContent"`
	IsError    bool              `json:"isError"`
	Type       string            `json:"resultType"`
}
