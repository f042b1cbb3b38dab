package main

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

func newServersSetCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "set SERVER KEY=VALUE...",
		Short: "Change what a server's calls are subject to, without a restart",
		Long: `Changes keys of a server at run time. KEY is what stands below servers.SERVER in
tine.yaml, with dots between the levels: timeout, connect_timeout, journal, and
what is below policy, auth and tools. What says which program or address the
server is can't be changed at run time.

VALUE is a text, a number, true or false, or a list like [a,b] or a,b, as the key
wants it; KEY:=JSON sets JSON as it stands. All keys are changed together or none
is. Calls that are under way end as they began.

What is set is merged over the config and over what was set before, is kept over
a restart of the gateway, and shows in "tine servers" with a star. "tine servers
unset" takes keys back and "tine servers reset" takes back everything.

Headers and secrets are not set here, since a command line is seen by others: use
"tine servers header" and "tine servers secret".`,
		Example: `  tine servers set files timeout=10s policy.retry.attempts=5
  tine servers set web policy.breaker.failures=0 journal=meta
  tine servers set web policy.rate.calls=2.5 policy.concurrency.calls=4
  tine servers set files 'tools.deny=[write_*,move_file]'`,
		Args:              someArgs("the id of a server and KEY=VALUE"),
		ValidArgsFunction: c.completeSet,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.setServer(cmd.Context(), args[0], args[1:])
		},
	}
}

func newServersUnsetCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "unset SERVER KEY...",
		Short: "Take back what was set at run time",
		Long: `Takes back keys that "tine servers set", "header" or "secret" changed: they are as
the config says again. A KEY takes everything below it with it: policy takes back
the whole policy. "tine servers show" lists what was changed.`,
		Example: `  tine servers unset files timeout
  tine servers unset web policy.retry headers.X-Team`,
		Args:              someArgs("the id of a server and a key"),
		ValidArgsFunction: c.completeUnset,
		RunE: func(cmd *cobra.Command, args []string) error {
			patch := api.ServerPatch{Unset: args[1:]}
			return c.patchServer(cmd.Context(), args[0], patch, func(s *api.Server) string {
				return strings.Join(args[1:], ", ") + " as the config says" + changed(s)
			})
		},
	}
}

func newServersHeaderCmd(c *cli) *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "header SERVER NAME",
		Short: "Set a header that Tine sends to a server, without a restart",
		Long: `Sets a header that Tine sends with every request to a server, such as one with a
key that was renewed. The value is asked for and not shown while it is typed, or
read from standard input where that is no terminal; it is never an argument,
which process lists and the shell's history would show. It is kept over a restart
and never shown again.

--remove takes it back: the header is as the config says again, or gone where the
config has none.`,
		Example: `  tine servers header web Authorization
  printf 'Bearer %s' "$KEY" | tine servers header web Authorization
  tine servers header web Authorization --remove`,
		Args:              exactArgs(2, "the id of a server and the name of a header"),
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, name := args[0], args[1]
			if !httpguts.ValidHeaderFieldName(name) {
				return usagef("%q is no name of a header; the value is asked for and does not belong here", name)
			}
			return c.setSecret(cmd.Context(), server, []string{"headers", name}, "value of the header "+name, remove)
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "take the header back instead")
	return cmd
}

func newServersSecretCmd(c *cli) *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "secret SERVER",
		Short: "Set the client secret that Tine gets tokens for a server with",
		Long: `Sets auth.client_secret of a server: what Tine shows to the server's sign-on to
get tokens. It is asked for and not shown while it is typed, or read from
standard input where that is no terminal. It is kept over a restart and never
shown again. --remove goes back to the config's.`,
		Example: `  tine servers secret crm
  pass show crm/client-secret | tine servers secret crm
  tine servers secret crm --remove`,
		Args:              oneArg("the id of a server"),
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.setSecret(cmd.Context(), args[0], []string{"auth", "client_secret"}, "client secret", remove)
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "go back to the config's secret instead")
	return cmd
}

func (c *cli) setServer(ctx context.Context, server string, pairs []string) error {
	var (
		root tree
		keys []string
	)
	for _, arg := range pairs {
		name, text, ok := strings.Cut(arg, "=")
		name, raw := strings.CutSuffix(name, ":")
		if !ok || name == "" {
			return usagef("%q is not KEY=VALUE; write it like timeout=10s", arg)
		}
		if !utf8.ValidString(arg) {
			return usagef("%q is not UTF-8 text", arg)
		}
		key, path := findKey(name)
		if key.Form == config.FormSecret {
			return usagef("%s would be seen by others on a command line; use %s", name, secretCommand(server, path))
		}
		value, err := key.value(text)
		if raw {
			err = validJSON([]byte(text))
			value = []byte(strings.TrimSpace(text))
		}
		if err != nil {
			return usagef("%s: %w", name, err)
		}
		if !root.set(path, value) {
			return usagef("%s is given twice, or with a key above or below it", name)
		}
		keys = append(keys, name)
	}
	return c.patchServer(ctx, server, api.ServerPatch{Set: root.json()}, func(s *api.Server) string {
		return strings.Join(keys, ", ") + " set" + changed(s)
	})
}

// secretCommand is how to set what does not belong on a command line.
func secretCommand(server string, path []string) string {
	switch {
	case path[0] == "auth":
		return "tine servers secret " + server
	case len(path) > 1:
		return "tine servers header " + server + " " + path[1]
	}
	return "tine servers header " + server + " NAME"
}

// setSecret reads a secret and sets it, or takes it back.
func (c *cli) setSecret(ctx context.Context, server string, path []string, what string, remove bool) error {
	key := strings.Join(path, ".")
	if remove {
		return c.patchServer(ctx, server, api.ServerPatch{Unset: []string{key}}, func(s *api.Server) string {
			return key + " as the config says" + changed(s)
		})
	}
	value, err := c.secret(ctx, what)
	if err != nil {
		return err
	}
	var root tree
	root.set(path, quote(value))
	return c.patchServer(ctx, server, api.ServerPatch{Set: root.json()}, func(s *api.Server) string {
		return key + " set" + changed(s)
	})
}

// changed lists what of a server differs from the config.
func changed(s *api.Server) string {
	if len(s.Overrides) == 0 {
		return "; nothing is changed at run time"
	}
	return "; changed at run time: " + strings.Join(s.Overrides, ", ")
}

// someArgs wants two arguments or more, exactArgs just so many.
func someArgs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return usagef("%s wants %s; see %s --help", short(cmd), what, cmd.CommandPath())
		}
		return nil
	}
}

func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s wants %s and nothing else; see %s --help", short(cmd), what, cmd.CommandPath())
		}
		return nil
	}
}
