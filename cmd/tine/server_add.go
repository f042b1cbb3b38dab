package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

const configEdited = `The config is the file that --config or TINE_CONFIG names, else the config of the
running gateway, else the one that "tine serve" would find here. Comments and order
are preserved, and the new config is validated before it replaces the old one. A
gateway that runs with this config has reloaded it when the command returns.`

const configMade = `

A named file that does not exist is created. If no file is named or found, the
command creates tine.yaml in the current folder, with the built-in servers that a
gateway has without a config.`

// addOptions are the flags of tine servers add.
type addOptions struct {
	config       string
	env, headers []string
	config.Addition
}

func newServersAddCmd(c *cli) *cobra.Command {
	var o addOptions
	cmd := &cobra.Command{
		Use:   "add NAME (URL | -- COMMAND [ARG]... | --builtin SERVER)",
		Short: "Add a server to the config",
		Long: `Adds a server to the config: a program with its command after --, the URL of a
remote server, or a built-in server.

` + configEdited + configMade + `

${NAME} in a value is written as it is, and the gateway replaces it with its
environment variable NAME. Use it for secrets, because process lists and the
shell's history show command lines. Single quotes keep the shell from expanding
it.`,
		Example: `  tine servers add thinking -- npx -y @modelcontextprotocol/server-sequential-thinking
  tine servers add shell --sandbox --env DEBUG=1 -- uvx some-shell-server
  tine servers add search https://search.example.com/mcp --header 'Authorization: Bearer ${SEARCH_TOKEN}'
  tine servers add notes --builtin memory`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(cmd, args); err != nil {
				return err
			}
			return c.addServer(cmd.Context(), args[0], o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "config file (env TINE_CONFIG)")
	f.StringArrayVar(&o.env, "env", nil, "environment variable of the program, KEY=VALUE; repeatable")
	f.StringArrayVar(&o.headers, "header", nil, "header of requests to the URL, 'NAME: VALUE'; repeatable")
	f.StringVar(&o.Builtin, "builtin", "", "use this built-in server, such as memory")
	f.BoolVar(&o.Sandbox, "sandbox", false, "run the program in a sandbox")
	return cmd
}

func newServersRemoveCmd(c *cli) *cobra.Command {
	var flag string
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Remove a server from the config",
		Long: `Removes a server from the config. Comments above it stay. "tine servers disable"
disables a server and keeps it in the config.

` + configEdited,
		Example:           "  tine servers remove search",
		Args:              oneArg("the name of a server"),
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.changeConfig(cmd.Context(), flag, args[0], "removed from", false, func(text []byte, o config.Options) ([]byte, *config.Config, error) {
				return config.RemoveServer(text, o, args[0])
			})
		},
	}
	cmd.Flags().StringVar(&flag, "config", "", "config file (env TINE_CONFIG)")
	return cmd
}

// read turns the command line into the server.
func (o *addOptions) read(cmd *cobra.Command, args []string) error {
	const forms = "write: tine servers add NAME URL, or tine servers add NAME -- COMMAND ARG..., or tine servers add NAME --builtin SERVER"
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return usagef("servers add wants a name; %s", forms)
	case dash > 1 || dash < 0 && len(args) > 2:
		return usagef("servers add wants a name and one URL, or a command behind --; %s", forms)
	case dash == 1 && len(args) == 1:
		return usagef("servers add has no command behind --; %s", forms)
	case dash == 1:
		o.Command, o.Args = args[1], args[2:]
	case len(args) == 2 && !strings.Contains(args[1], "://"):
		return usagef("%q is no URL; a command is written after --: tine servers add %s -- %s", args[1], args[0], args[1])
	case len(args) == 2:
		o.URL = args[1]
	case o.Builtin == "":
		return usagef("servers add does not know what %q is; %s", args[0], forms)
	}
	if o.Builtin != "" && o.Command+o.URL != "" {
		return usagef("--builtin stands for a command or a URL and not beside one")
	}
	for _, arg := range args {
		if !utf8.ValidString(arg) {
			return usagef("argument %q is not UTF-8 text, which a config file is", arg)
		}
	}
	var err error
	if o.Env, err = keyValues("env", "KEY=VALUE", "=", o.env); err != nil {
		return err
	}
	o.Headers, err = keyValues("header", "'NAME: VALUE'", ":", o.headers)
	return err
}

func keyValues(flag, form, between string, given []string) (map[string]string, error) {
	values := map[string]string{}
	for _, text := range given {
		key, value, ok := strings.Cut(text, between)
		if between == ":" {
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		}
		_, twice := values[key]
		switch {
		case !ok || key == "":
			return nil, usagef("--%s wants %s", flag, form) // what was given may be a secret
		case !utf8.ValidString(text):
			return nil, usagef("--%s %s is not UTF-8 text", flag, key)
		case twice:
			return nil, usagef("--%s %s is given twice", flag, key)
		}
		values[key] = value
	}
	return values, nil
}

func (c *cli) addServer(ctx context.Context, name string, o addOptions) error {
	return c.changeConfig(ctx, o.config, name, "added to", true, func(text []byte, opts config.Options) ([]byte, *config.Config, error) {
		s := o.Addition
		if bytes.Equal(text, config.Empty(".json")) && (s.Builtin != "" || s.Sandbox) {
			return nil, nil, fmt.Errorf("%s would be a file of the form that other programs have, which knows neither builtin nor sandbox; name a .yaml file", opts.Path)
		}
		// A relative path starts at the folder of the config.
		if here, err := filepath.Abs("."); err == nil && strings.Contains(s.Command, "/") && !filepath.IsAbs(s.Command) && !strings.HasPrefix(s.Command, "~") && !strings.HasPrefix(s.Command, "${") && filepath.Dir(opts.Path) != here {
			s.Command = filepath.Join(here, s.Command)
		}
		return config.AddServer(text, opts, name, s)
	})
}

// changeConfig changes the chosen config file, and says so. A named file that is missing
// may be made.
func (c *cli) changeConfig(ctx context.Context, flag, server, what string, makes bool, change func([]byte, config.Options) ([]byte, *config.Config, error)) error {
	path, begin, err := c.configToChange(ctx, flag)
	if err != nil {
		return err
	}
	opts := c.serveOptions()
	opts.Path = path
	var conf *config.Config
	if !makes {
		begin = nil
	}
	made, err := c.replaceFile(ctx, path, begin, 0o600, func(old []byte) (text []byte, err error) {
		if text, conf, err = change(old, opts); err != nil {
			return nil, &usageError{err}
		}
		return text, nil
	})
	if err != nil {
		return err
	}
	var warnings []string
	for _, w := range conf.Warnings {
		if strings.Contains(w, fmt.Sprintf("server %q", server)) {
			warnings = append(warnings, w)
		}
	}
	c.printWarnings(warnings)
	done := fmt.Sprintf("%s: %s %s", server, what, path)
	if made {
		done += ", a new file"
	}
	run, taken, err := c.handOver(ctx, path)
	if err != nil {
		return fmt.Errorf("%s; %w", done, err)
	}
	reloads := run != nil && run.Config != ""
	serve := c.own("tine serve --config " + shellWord(path))
	advice := fmt.Sprintf("no gateway of this state folder uses it; %s starts one", serve)
	switch {
	case taken:
		advice = "the running gateway has loaded it; see " + c.own("tine servers")
	case reloads:
		advice = "the running gateway has an earlier version, and loads it by itself in a moment; see " + c.own("tine servers")
	case run != nil:
		advice = fmt.Sprintf("the running gateway, process %d, has the built-in defaults and reads no config; stop it, and start it again with: %s", run.PID, serve)
	}
	return c.answer(map[string]any{"server": server, "config": path, "made": made, "reloads": reloads, "taken": taken}, done, advice)
}

// handOver makes the running gateway of a config load it, and reports whether it has. A
// gateway with the built-in defaults is found too; nil if there is none.
func (c *cli) handOver(ctx context.Context, path string) (run *gatewayFile, taken bool, err error) {
	state, err := c.stateDir()
	if err != nil {
		return nil, false, nil // no gateway was found
	}
	run = c.running(ctx, state, "", false)
	if run == nil || run.Config == "" {
		return run, false, nil
	}
	if !sameFile(path, run.Config) {
		return nil, false, nil
	}
	g, err := run.client()
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err = g.Reload(ctx)
	if no := (*api.Error)(nil); errors.As(err, &no) && no.Status == http.StatusNotFound {
		return run, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("the running gateway, process %d, has not loaded it: %w", run.PID, err)
	}
	return run, true, nil
}
