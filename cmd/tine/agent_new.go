package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/config"
)

// newBlueprint is what agent new writes.
const newBlueprint = `# The agent %[1]s. All keys: docs/agents.md
description: Says what it is for in one line; other agents choose by it

# Placeholders: ${params.NAME}, ${scope.NAME}, ${env.NAME}, ${runtime.session_id},
# and $${ for a plain dollar sign and brace.
system_prompt: |
  You are %[1]s. Do what the prompt asks, with the tools that you have.

# MCP servers that it may use: those of the config by their ids, or entries as there.
mcp_servers:%[2]s

# The program that does the work: claude-code, codex, command or procedural.
executor: claude-code

# What a run is given; without this it is {prompt: string}.
# parameters:
#   type: object
#   properties: {prompt: {type: string}, files: {type: array, items: {type: string}}}
#   required: [prompt]

# Agents that it may start.
# agents: ["worker-*"]
`

func newAgentNewCmd(c *cli, flag *string) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Create a blueprint to begin with",
		Long: `Writes a small blueprint with comments to NAME/agent.yaml in the folder of the
blueprints: the first of agents.dir of the config, or the folder agents beside it.
An agent that exists is never replaced.`,
		Example: `  tine agent new reviewer
  tine agent new reviewer --dir ~/agents`,
		Args: oneArg("a name for the agent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := c.agentFiles(*flag)
			if err != nil {
				return err
			}
			return c.newAgent(cmd, f, args[0], dir)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder to write to, instead of that of the config")
	return cmd
}

// createdAgent is the answer of agent new for programs.
type createdAgent struct {
	Name string `json:"name"`
	File string `json:"file"`
}

func (c *cli) newAgent(cmd *cobra.Command, f *agentFiles, name, dir string) error {
	if !config.AgentName(name) {
		return usagef("%q can't name an agent; use 1 to 64 letters, digits, dashes and underscores", config.Clip(name))
	}
	elsewhere := dir != ""
	if !elsewhere {
		dir = f.folders[0]
	}
	b, err := f.store.Get(cmd.Context(), name)
	if err == nil || isMistake(err) {
		return fmt.Errorf("agent %q is there already, as %s; edit it, or choose another name", name, b.Source)
	} else if !errors.Is(err, blueprint.ErrUnknown) {
		return err
	}
	path := filepath.Join(dir, name, "agent.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the folder of the agent: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; edit it, or choose another name", path)
	}
	if err != nil {
		return fmt.Errorf("write the blueprint: %w", err)
	}
	_, err = fmt.Fprintf(file, newBlueprint, name, f.firstServer())
	if err = errors.Join(err, file.Close()); err != nil {
		os.Remove(path)
		return fmt.Errorf("write the blueprint: %w", err)
	}
	check := "tine agent check " + name
	if elsewhere {
		check = "tine agent check " + path
	}
	return c.answer(createdAgent{name, path}, "wrote "+path, "edit it, then check it with: "+check)
}

// firstServer is the line of a server that the config has, or of none.
func (f *agentFiles) firstServer() string {
	for i := range f.conf.Servers {
		if s := &f.conf.Servers[i]; s.Enabled && s.Disabled == "" && !s.Controls() && config.AgentName(s.ID) {
			return "\n  " + s.ID + ": {}"
		}
	}
	return " {}"
}
