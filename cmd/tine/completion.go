package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/config"
)

// completeTime bounds how long a press of the tab key waits.
const completeTime = time.Second

func newCompletionCmd(c *cli) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a completion script for a shell",
		Long: `Prints a completion script for a shell. It completes commands and flags, and,
while a gateway runs, server ids, tool names and their arguments, session and call
ids, and the names of snapshots, tokens and agents.`,
		Example: `  source <(tine completion bash)
  tine completion bash > /etc/bash_completion.d/tine
  tine completion zsh > "${fpath[1]}/_tine"
  tine completion fish > ~/.config/fish/completions/tine.fish
  tine completion powershell | Out-String | Invoke-Expression`,
		ValidArgs: shells,
		Args:      oneArg("the name of a shell: " + strings.Join(shells, ", ")),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(c.stdout, true)
			case "zsh":
				return root.GenZshCompletion(c.stdout)
			case "fish":
				return root.GenFishCompletion(c.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(c.stdout)
			}
			return usagef("unknown shell %q; it is one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}

// completeServer completes the first argument as the id of a server. Without a
// gateway it offers nothing.
func (c *cli) completeServer(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := quick(cmd, c, func(ctx context.Context, g *gateway) (*api.ServerList, error) { return g.Servers(ctx) })
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, s := range list.Servers {
		if strings.HasPrefix(s.ID, start) {
			found = append(found, cobra.CompletionWithDesc(s.ID, s.State))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeCall completes the name of a tool, then the keys of its arguments.
func (c *cli) completeCall(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 && strings.Contains(start, "=") {
		return nil, cobra.ShellCompDirectiveDefault // a value: perhaps a file
	}
	session, _ := cmd.Flags().GetString("session")
	list, err := quick(cmd, c, func(ctx context.Context, g *gateway) (_ *api.ToolList, err error) {
		if session != "" {
			if session, err = findSession(ctx, g, session); err != nil {
				return nil, err
			}
		}
		return g.ToolsIn(ctx, session, "")
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, t := range list.Tools {
		switch {
		case len(args) == 0 && strings.HasPrefix(t.Name, start):
			found = append(found, cobra.CompletionWithDesc(t.Name, visible(firstLine(t.Description), true)))
		case len(args) > 0 && t.Name == args[0]:
			given := map[string]bool{}
			for _, a := range args[1:] {
				key, _, _ := strings.Cut(a, "=")
				given[strings.TrimSuffix(key, ":")] = true
			}
			for _, name := range newToolSchema(t.Name, t.InputSchema).names() {
				if !given[name] && strings.HasPrefix(name, start) {
					found = append(found, name+"=")
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag completes the value of a flag.
func (c *cli) completeFlag(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the flag is not there: every start of the program would show it
	}
}

func (c *cli) completeServerFlag(cmd *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeServer(cmd, nil, start)
}

// completeCallID completes the id of one of the last calls.
func (c *cli) completeCallID(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeCalls(cmd, args, start, func(api.Call) bool { return true })
}

// completeToolCallID completes the id of a call that can be repeated.
func (c *cli) completeToolCallID(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return c.completeCalls(cmd, args, start, func(call api.Call) bool {
		return call.Method == "tools/call" && call.Journal == config.JournalFull
	})
}

func (c *cli) completeCalls(cmd *cobra.Command, args []string, start string, want func(api.Call) bool) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder // newest first
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := quick(cmd, c, func(ctx context.Context, g *gateway) (*api.CallList, error) {
		return g.Calls(ctx, client.CallQuery{Limit: 200})
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, call := range list.Calls {
		if strings.HasPrefix(call.ID, start) && want(call) {
			text := fmt.Sprintf("%s %s %s, %s ago", call.Server, callName(call), call.Outcome, c.age(call.At))
			found = append(found, cobra.CompletionWithDesc(call.ID, visible(oneLine(text), true)))
		}
	}
	return found, directive
}

// completeToken completes the name of a token that can be revoked.
func (c *cli) completeToken(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := quick(cmd, c, func(ctx context.Context, g *gateway) (*api.TokenList, error) { return g.Tokens(ctx) })
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, t := range list.Tokens {
		if strings.HasPrefix(t.Name, start) && !t.Config {
			found = append(found, cobra.CompletionWithDesc(t.Name, t.Role))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeSet completes a server, then the keys that may be set.
func (c *cli) completeSet(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return c.completeServer(cmd, args, start)
	}
	if strings.Contains(start, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, k := range config.Settable() {
		if k.Form == config.FormSecret || !strings.HasPrefix(k.Name, start) {
			continue
		}
		name := k.Name + "="
		if ownNames(k) {
			name = k.Name + "."
		}
		found = append(found, cobra.CompletionWithDesc(name, k.Text()))
	}
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeUnset completes a server, then the keys of it that were set.
func (c *cli) completeUnset(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return c.completeServer(cmd, args, start)
	}
	s, err := quick(cmd, c, func(ctx context.Context, g *gateway) (*api.Server, error) { return g.Server(ctx, args[0]) })
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, key := range s.Overrides {
		if key != "enabled" && strings.HasPrefix(key, start) && !slices.Contains(args[1:], key) {
			found = append(found, key)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// quick asks the gateway for a completion.
func quick[T any](cmd *cobra.Command, c *cli, f func(context.Context, *gateway) (T, error)) (T, error) {
	g, err := c.connect()
	if err != nil {
		var zero T
		return zero, err
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTime)
	defer cancel()
	return f(ctx, g)
}
