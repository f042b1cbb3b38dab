package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/hook"
	"github.com/tine-mcp/tine/internal/config"
)

// agentFiles are the blueprints of a config, as the commands see them without a gateway.
type agentFiles struct {
	conf    *config.Config
	folders blueprint.Folders
	store   *blueprint.Store
}

func newAgentCmd(c *cli) *cobra.Command {
	var flag string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Check, list, show and create blueprints of agents",
		Long: `Checks, lists, shows and creates the blueprints of agents. No gateway needs to run:
the commands read the folders that agents.dir of the config names, by default the
folder agents beside it. The config is found as by "tine config".

put and delete are about the blueprints that a gateway keeps in its state folder. While
it runs, list and show have them, too.`,
		Example: `  tine agent new reviewer
  tine agent check
  tine agent list
  tine agent show reviewer
  tine agent put reviewer reviewer.json`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	for _, of := range []*cobra.Command{newAgentCheckCmd(c, &flag), newAgentListCmd(c, &flag), newAgentShowCmd(c, &flag), newAgentNewCmd(c, &flag)} {
		of.Flags().StringVar(&flag, "config", "", "config file (env TINE_CONFIG)")
		cmd.AddCommand(of)
	}
	cmd.AddCommand(newAgentPutCmd(c), newAgentDeleteCmd(c))
	return cmd
}

// agentFiles finds the blueprints of the config that a command uses.
func (c *cli) agentFiles(flag string) (*agentFiles, error) {
	path, err := c.findConfig(flag)
	if err != nil {
		return nil, err
	}
	conf, err := config.Load(path, c.configOptions())
	if err != nil {
		return nil, err
	}
	return agentFilesOf(conf), nil
}

func agentFilesOf(conf *config.Config) *agentFiles {
	f := &agentFiles{conf: conf, folders: blueprint.Folders(conf.AgentDirs())}
	for i, dir := range f.folders {
		f.folders[i] = shorter(dir)
	}
	f.store = blueprint.NewStore(func() blueprint.Folders { return f.folders }, nil)
	return f
}

// withGateway asks the gateway that flags or the environment name, or that runs on the state
// folder. asked is false where there is none.
func withGateway[T any](ctx context.Context, c *cli, do func(context.Context, *gateway) (T, error)) (out T, asked bool, err error) {
	if file, err := c.runningGateway(); err == nil && file == nil && c.flags.url == "" && c.getenv("TINE_URL") == "" {
		return out, false, nil
	}
	g, err := c.connect()
	if err != nil {
		return out, true, err
	}
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	out, err = do(ctx, g)
	return out, true, err
}

// shorter is a path below the current folder as people write it.
func shorter(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(here, path); err == nil && filepath.IsAbs(path) && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// known is what blueprints may name.
func (f *agentFiles) known(c *cli, agents []blueprint.Listed) blueprint.Known {
	path, _ := c.lookupEnv("PATH")
	k := blueprint.Known{
		Executors: f.conf.Agents.ExecutorNames(), Env: map[string]bool{}, Config: settingsOf(f.conf.Agents),
		Program: func(command string) error { return hook.Find(command, path) },
	}
	for i := range f.conf.Servers {
		k.Servers = append(k.Servers, f.conf.Servers[i].ID)
	}
	for _, a := range agents {
		k.Agents = append(k.Agents, a.Name)
	}
	for _, name := range f.conf.Agents.Env {
		_, k.Env[name] = c.lookupEnv(name)
	}
	return k
}

// where names the folders.
func (f *agentFiles) where() string { return strings.Join(f.folders, ", ") }

// agentError is an error of the store for the command line.
func (f *agentFiles) agentError(err error) error {
	if errors.Is(err, blueprint.ErrUnknown) {
		return usagef("%w; looked in %s, see: tine agent list", err, f.where())
	}
	return err
}

// completeAgent completes the name of a blueprint.
func (c *cli) completeAgent(flag *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		f, err := c.agentFiles(*flag)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, stop := context.WithTimeout(cmd.Context(), completeTime)
		defer stop()
		list, err := f.store.List(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []cobra.Completion
		for _, a := range list {
			if strings.HasPrefix(a.Name, start) {
				found = append(found, cobra.CompletionWithDesc(a.Name, visible(firstLine(cmp.Or(a.Description, a.Source)), true)))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// countAgents counts agents and capabilities in words.
func countAgents(agents, capabilities int) string {
	text := count(agents, "agent")
	switch capabilities {
	case 0:
	case 1:
		text += ", 1 capability"
	default:
		text += fmt.Sprintf(", %d capabilities", capabilities)
	}
	return text
}
