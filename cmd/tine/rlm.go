package main

import "github.com/spf13/cobra"

// newRLMCmd is the parent of the commands that install the server rlm in clients.
func newRLMCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rlm",
		Short:   "Serve a Python kernel to one client",
		Example: "  tine rlm install claude-code",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	f := cmd.Flags()
	f.StringArray("allow-read", nil, "file or folder that rlm_load may read; repeatable")
	f.String("python", "", "interpreter of the kernel")
	f.String("project", "", "folder of the project")
	cmd.AddCommand(newRLMInstallCmd(c), newRLMUninstallCmd(c))
	return cmd
}
