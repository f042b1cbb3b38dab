package main

import (
	"context"
	"slices"
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
		Short: "Change settings of a server at run time",
		Long: `Changes settings of a server at run time. KEY is a key below servers.SERVER in
tine.yaml, with dots between the levels: timeout, connect_timeout, journal, and
the keys below policy, auth and tools. The keys that define the server's program
or address can't be changed at run time.

VALUE is a string, a number, true or false, or a list like [a,b] or a,b, depending
on the key; KEY:=JSON sets a JSON value. The command changes all keys or none.
Calls in progress keep the old settings.

The new values are merged over the config and over earlier changes, survive a
restart of the gateway, and are marked with a star in "tine servers". "tine servers
unset" removes single changes, and "tine servers reset" removes all of them.

Headers and secrets can't be set with this command, because process lists and the
shell's history show command lines: use "tine servers header" and "tine servers
secret".`,
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
		Short: "Remove run-time changes of a server",
		Long: `Removes changes that "tine servers set", "header" or "secret" made: the keys have
the values of the config again. A KEY includes all keys below it: policy removes
all changes of the policy. "tine servers show" lists the changes.`,
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
		Short: "Set a request header of a server at run time",
		Long: `Sets a header that Tine sends with every request to a server, such as a renewed
API key. The command prompts for the value without echo, or reads it from standard
input if that is not a terminal. The value is never an argument, because process
lists and the shell's history show arguments. It survives a restart and is never
displayed.

--remove removes the change: the header has the value of the config again, or is
not sent if the config has none.`,
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
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the change of the header")
	return cmd
}

func newServersSecretCmd(c *cli) *cobra.Command {
	var (
		remove bool
		key    string
	)
	cmd := &cobra.Command{
		Use:   "secret SERVER",
		Short: "Set the OAuth client secret or private key of a server at run time",
		Long: `Sets auth.client_secret of a server, or with --key private_key its
auth.private_key: with either Tine gets tokens from the server's authorization
server. The command prompts for the secret without echo, or reads it from standard
input if that is not a terminal. A private key has several lines and is always read
from standard input. The value survives a restart and is never displayed. --remove
restores the value of the config.`,
		Example: `  tine servers secret crm
  pass show crm/client-secret | tine servers secret crm
  tine servers secret crm --key private_key < key.pem
  tine servers secret crm --remove`,
		Args:              oneArg("the id of a server"),
		ValidArgsFunction: c.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(secretKeys(), key) {
				return usagef("%q is no secret of a server's auth; --key takes %s", key, config.OrList(secretKeys()))
			}
			return c.setSecret(cmd.Context(), args[0], []string{"auth", key}, strings.ReplaceAll(key, "_", " "), remove)
		},
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "restore the value of the config")
	cmd.Flags().StringVar(&key, "key", clientSecret, "the key below auth: "+config.OrList(secretKeys()))
	c.completeFlag(cmd, "key", cobra.FixedCompletions(secretKeys(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

const (
	clientSecret = "client_secret"
	privateKey   = "private_key" // of several lines
)

// secretKeys are the keys below auth that "servers secret" sets.
func secretKeys() []string {
	var keys []string
	for _, k := range config.Settable() {
		if name, ok := strings.CutPrefix(k.Name, "auth."); ok && k.Form == config.FormSecret {
			keys = append(keys, name)
		}
	}
	return keys
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

// secretCommand is the command to set a value that does not belong on a command
// line.
func secretCommand(server string, path []string) string {
	switch {
	case path[0] == "auth" && path[1] == privateKey:
		return "tine servers secret " + server + " --key " + privateKey + " < key.pem"
	case path[0] == "auth":
		return "tine servers secret " + server
	case len(path) > 1:
		return "tine servers header " + server + " " + path[1]
	}
	return "tine servers header " + server + " NAME"
}

// setSecret reads a secret and sets it, or removes the change.
func (c *cli) setSecret(ctx context.Context, server string, path []string, what string, remove bool) error {
	key := strings.Join(path, ".")
	if remove {
		return c.patchServer(ctx, server, api.ServerPatch{Unset: []string{key}}, func(s *api.Server) string {
			return key + " as the config says" + changed(s)
		})
	}
	lines := path[len(path)-1] == privateKey
	if lines && c.inTerminal {
		return usagef("a %s has several lines, so it is read from standard input; run: %s", what, secretCommand(server, path))
	}
	value, err := c.secret(ctx, what, lines)
	if err != nil {
		return err
	}
	var root tree
	root.set(path, quote(value))
	return c.patchServer(ctx, server, api.ServerPatch{Set: root.json()}, func(s *api.Server) string {
		return key + " set" + changed(s)
	})
}

// changed lists the settings of a server that differ from the config.
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
