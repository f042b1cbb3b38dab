package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

// completeTime bounds what a press of the tab key waits for.
const completeTime = time.Second

func newCompletionCmd(c *cli) *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script that teaches a shell to complete tine's commands",
		Long: `Prints a script for a shell. With it the tab key completes commands and flags,
and, while a gateway runs, the ids of servers and the names of tools and their
arguments.`,
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
// gateway there is nothing to complete and nothing to say.
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
	list, err := quick(cmd, c, func(ctx context.Context, g *gateway) (*api.ToolList, error) { return g.Tools(ctx, "") })
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
