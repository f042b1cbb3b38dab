package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
)

const clientFiles = `
  claude-code     ~/.claude.json, below the project (--scope local, the default) or
                  for all projects (--scope user); or .mcp.json in the project
                  (--scope project). CLAUDE_CONFIG_DIR is respected.
  claude-desktop  claude_desktop_config.json in the app's folder
  cursor          ~/.cursor/mcp.json (--scope user, the default), or .cursor/mcp.json
                  in the project (--scope project)
  vscode          mcp.json of the user's default profile (--scope user, the default),
                  or .vscode/mcp.json in the project (--scope project)

--file names another file, such as that of VS Code Insiders or of another profile.

Everything else in the file stays byte for byte as it was. The change is printed as
a diff, so that it can be undone; secrets in it that stay in the file are masked. A
file with a mistake is named with the line, and is not changed.`

// installFlags are the flags of tine rlm install and uninstall.
type installFlags struct {
	scope, project, file, name string
	print, replace             bool
}

// newRLMInstallCmd makes the command; its parent reads the flags after -- into given.
func newRLMInstallCmd(c *cli, given *rlmFlags) *cobra.Command {
	var o installFlags
	cmd := &cobra.Command{
		Use:   "install CLIENT [-- FLAG...]",
		Short: "Add the server rlm to a client's config",
		Long: `Adds "tine rlm" to the MCP servers of a client. Flags after -- become flags of
tine rlm in the client's config.

The config files are:
` + clientFiles + `

Claude Code starts the server in the folder of its session. Cursor and VS Code are
told to pass the open folder; with --scope user, --project passes that folder instead.
Claude Desktop has no project, so --project is required there.`,
		Example: `  tine rlm install claude-code
  tine rlm install claude-code --print
  tine rlm install claude-code --scope user -- --allow-read ~/data --python .venv/bin/python
  tine rlm install claude-desktop --project ~/work
  tine rlm install vscode --scope project`,
		Args: clientArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := c.clientPlace(args[0], o)
			if err != nil {
				return err
			}
			entry, err := c.rlmEntry(cmd, p, o, args[1:])
			if err == nil {
				err = given.checkZero(cmd.Parent())
			}
			if err == nil {
				err = c.checkGiven(*given, p, o)
			}
			if err != nil {
				return err
			}
			return c.changeClient(cmd.Context(), p, o, func(f *config.JSONFile) (clientChange, error) {
				return addEntry(f, p, entry)
			})
		},
	}
	c.addInstallFlags(cmd, &o)
	cmd.Flags().BoolVar(&o.replace, "replace", false, "replace another server of that name")
	return cmd
}

func newRLMUninstallCmd(c *cli) *cobra.Command {
	var o installFlags
	cmd := &cobra.Command{
		Use:   "uninstall CLIENT",
		Short: "Remove the server rlm from a client's config",
		Long: `Removes the entry that "tine rlm install" adds to the config of a client, with the
same --scope, --project, --file and --name.

The config files are:
` + clientFiles,
		Example: `  tine rlm uninstall claude-code
  tine rlm uninstall vscode --scope project --print`,
		Args: clientArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("rlm uninstall takes one argument, got %d; see %s --help", len(args), cmd.CommandPath())
			}
			p, err := c.clientPlace(args[0], o)
			if err != nil {
				return err
			}
			return c.changeClient(cmd.Context(), p, o, func(f *config.JSONFile) (clientChange, error) {
				return removeEntry(f, p)
			})
		},
	}
	c.addInstallFlags(cmd, &o)
	return cmd
}

func (c *cli) addInstallFlags(cmd *cobra.Command, o *installFlags) {
	f := cmd.Flags()
	f.StringVar(&o.scope, "scope", "", "where the server is known: local, project or user")
	f.StringVar(&o.project, "project", "", "folder of the project; the current one by default")
	f.StringVar(&o.file, "file", "", "config file of the client")
	f.StringVar(&o.name, "name", "rlm", "name of the server in the client")
	f.BoolVar(&o.print, "print", false, "print the change without making it")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // flags of tine rlm may name files
		}
		var found []cobra.Completion
		for _, client := range rlmClients {
			if strings.HasPrefix(client.name, start) {
				found = append(found, cobra.CompletionWithDesc(client.name, client.title))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
	c.completeFlag(cmd, "scope", func(_ *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		scopes := []string{scopeLocal, scopeProject, scopeUser}
		if len(args) > 0 {
			if client := findClient(args[0]); client != nil {
				scopes = client.scopes
			}
		}
		var found []cobra.Completion
		for _, s := range scopes {
			if strings.HasPrefix(s, start) {
				found = append(found, s)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	})
	c.completeFlag(cmd, "project", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
}

// clientArgs wants a client before everything else.
func clientArgs(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return usagef("%s wants a client: %s; see %s --help", short(cmd), strings.Join(clientNames(), ", "), cmd.CommandPath())
	case len(args) > 1 && dash != 1:
		return usagef("%s takes one client, got %q as well; flags of tine rlm are written after --: %s %s -- %s", short(cmd), args[1], cmd.CommandPath(), args[0], args[1])
	}
	return nil
}

// clientName is what all clients take as the name of a server.
var clientName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// clientEntry is a server in the config of a client.
type clientEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// rlmEntry is the server to be added. What stands after -- must be flags that "tine rlm"
// takes: a mistake in them would only show when the client starts it.
func (c *cli) rlmEntry(cmd *cobra.Command, p *clientPlace, o installFlags, flags []string) (clientEntry, error) {
	e := clientEntry{Args: []string{"rlm"}}
	if p.client.typed {
		e.Type = "stdio"
	}
	rlm, given := cmd.Parent(), c.flags
	err := rlm.ParseFlags(flags)
	c.flags = given
	switch {
	case err != nil:
		return e, usagef("the flags after -- are not those of %s: %w; see %s --help", rlm.CommandPath(), err, rlm.CommandPath())
	case rlm.Flags().NArg() > 0:
		return e, usagef("%q after -- is no flag, and %s takes no argument; see %s --help", rlm.Flags().Arg(0), rlm.CommandPath(), rlm.CommandPath())
	case rlm.Flags().Changed("project"):
		return e, usagef("write --project before --; after it, %s does not see the folder", cmd.CommandPath())
	}
	switch {
	case p.scope != scopeUser:
		if p.client.folder != "" {
			e.Args = append(e.Args, "--project", p.client.folder)
		}
	case o.project != "":
		e.Args = append(e.Args, "--project", p.project)
	case p.client.folder != "":
		e.Args = append(e.Args, "--project", p.client.folder)
	case !p.client.starts:
		return e, usagef("%s has no project folder in which it starts servers; name one: %s %s --project DIR", p.client.title, cmd.CommandPath(), p.client.name)
	}
	if cmd.Flags().Changed("state") {
		dir, err := filepath.Abs(given.state)
		if err != nil {
			return e, err
		}
		e.Args = append(e.Args, "--state", dir)
	}
	e.Args = append(e.Args, flags...)
	if e.Command, err = c.program(p.client.starts || p.scope == scopeProject); err != nil {
		return e, err
	}
	for _, s := range append([]string{e.Command}, e.Args...) {
		if !utf8.ValidString(s) {
			return e, usagef("%q is not UTF-8 text, which a config file is", s)
		}
	}
	return e, nil
}

// checkGiven checks the values of the flags after --. Files are looked for where the folder
// of the server is known.
func (c *cli) checkGiven(given rlmFlags, p *clientPlace, o installFlags) error {
	given.Project = p.project
	if p.scope == scopeUser && o.project == "" {
		given.AllowRead, given.Python, given.SRT = nil, "", ""
	}
	err := given.resolve()
	if err == nil {
		_, err = c.rlmConfig(&given)
	}
	if err == nil {
		_, err = given.srt()
	}
	if err != nil {
		return usagef("the flags after --: %w", err)
	}
	return nil
}

func (e clientEntry) node() *config.Node {
	n := config.MapNode()
	if e.Type != "" {
		n.Set("type", config.StringNode(e.Type))
	}
	n.Set("command", config.StringNode(e.Command))
	n.Set("args", config.ListNode(e.Args...))
	return n
}

// is reports whether a server in a file is this one. Keys that say what holds without
// them don't count.
func (e clientEntry) is(n *config.Node) bool {
	if n.Shape != config.ShapeMap {
		return false
	}
	for _, p := range n.Pairs {
		v := p.Value
		switch {
		case p.Key == "type" && v.Shape == config.ShapeString && v.Text == "stdio":
		case p.Key == "env" && v.Shape == config.ShapeMap && len(v.Pairs) == 0:
		case p.Key == "command" && v.Shape == config.ShapeString && v.Text == e.Command:
		case p.Key == "args" && v.Shape == config.ShapeList:
			same := func(item *config.Node, arg string) bool { return item.Shape == config.ShapeString && item.Text == arg }
			if !slices.EqualFunc(v.Items, e.Args, same) {
				return false
			}
		default:
			return false
		}
	}
	return n.Get("command") != nil && n.Get("args") != nil
}

func addEntry(f *config.JSONFile, p *clientPlace, e clientEntry) (clientChange, error) {
	ch := clientChange{entry: e, nothing: fmt.Sprintf("%s: nothing to do, %s has it", p.name, p.file)}
	there, _, err := f.Get(p.keys...)
	if err != nil || there != nil && e.is(there) {
		return ch, err
	}
	ch.taken = there != nil
	ch.done = fmt.Sprintf("%s: added to %s", p.name, p.file)
	ch.text, err = f.Set(e.node(), p.keys...)
	return ch, err
}

func removeEntry(f *config.JSONFile, p *clientPlace) (clientChange, error) {
	ch := clientChange{nothing: fmt.Sprintf("%s: nothing to do, %s does not have it", p.name, p.file)}
	there, raw, err := f.Get(p.keys...)
	if err != nil || there == nil {
		return ch, err
	}
	ch.entry = json.RawMessage(raw)
	ch.done = fmt.Sprintf("%s: removed from %s", p.name, p.file)
	ch.text, err = f.Remove(p.keys...)
	return ch, err
}
