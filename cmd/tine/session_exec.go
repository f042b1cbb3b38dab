package main

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

// Exit codes of a command that did not exit by itself, as shells have them.
const (
	exitTimeout = 124
	exitSignal  = 128
)

// maxStdin bounds what a command is given to read.
const maxStdin = 16 << 20

// execOptions are the flags of tine session exec.
type execOptions struct {
	api.ExecRequest
	env   []string
	stdin bool
}

func newSessionExecCmd(c *cli) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec ID SERVER -- COMMAND...",
		Short: "Run a command beside a server of a session",
		Long: `Runs a command where a server of a session runs: in its sandbox, in its container,
or as a process beside it. The command has the server's files, workspace and
environment. The server is started if it does not run, and woken if it is suspended.

What the command writes is printed as it comes, and tine exits with the command's
exit code: 128 and the number of a signal that ended it, 124 if its time was over.
--json prints one object with the output and the exit code.

The command is killed with all that it started when its time is over, when it is
interrupted or when it ends by itself. A fork of the session waits for it. The
command and its exit code are in the journal and in the trajectory of the session,
with the beginning and the end of its output.

With auth.rules the right to do this is exec. Built-in servers and servers at a URL
run no commands.

` + sessionIDs,
		Example: `  tine session exec 3f9a box -- ls -l /workspace
  tine session exec 3f9a box --cwd /workspace --timeout 10m -- make test
  tine session exec 3f9a box --stdin -- sh < setup.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0 && len(args) > 2:
				return usagef("%s wants -- before the command: tine %s %s %s -- %s", short(cmd), short(cmd), args[0], args[1], strings.Join(args[2:], " "))
			case dash != 2 || len(args) < 3:
				return usagef("%s wants the id of a session, a server, -- and a command; see %s --help", short(cmd), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: c.completeSession,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Server, o.Argv = args[1], args[2:]
			if o.Env, err = parseEnv(o.env); err != nil {
				return err
			}
			if err := spanFlags(map[string]*string{"timeout": &o.Timeout}); err != nil {
				return err
			}
			if o.stdin && c.stdin != nil {
				if o.Stdin64, err = readAll(c.stdin, "standard input", maxStdin); err != nil {
					return err
				}
			}
			return c.exec(cmd.Context(), args[0], o.ExecRequest)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Cwd, "cwd", "", "run it in this folder, as the server sees it (default the server's own)")
	f.StringArrayVar(&o.env, "env", nil, "set a variable, NAME=VALUE; repeatable")
	f.StringVar(&o.User, "user", "", "run it as this user, a name or UID[:GID] (default the server's own)")
	f.StringVar(&o.Timeout, "timeout", "", "kill it after this long, such as 90s (default 5m)")
	f.Int64Var(&o.MaxOutput, "max-output", 0, "kill it when it has written more bytes than this (default 64 MiB)")
	f.BoolVarP(&o.stdin, "stdin", "i", false, "give it standard input")
	return cmd
}

// parseEnv reads the values of --env.
func parseEnv(given []string) (map[string]string, error) {
	var env map[string]string
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("--env wants NAME=VALUE, got %q", text)
		}
		if env == nil {
			env = make(map[string]string)
		}
		env[name] = value
	}
	return env, nil
}

func (c *cli) exec(ctx context.Context, ref string, in api.ExecRequest) error {
	g, id, err := c.session(ctx, ref)
	if err != nil {
		return err
	}
	var out, errOut bytes.Buffer
	var stdout, stderr io.Writer = c.stdout, c.stderr
	if c.flags.json {
		stdout, stderr = &out, &errOut
	}
	end, err := g.Exec(ctx, id, in, stdout, stderr)
	if err != nil {
		return g.explain(mendSession(err))
	}
	if c.flags.json {
		e := *end
		e.Stdout, e.Stderr = out.String(), errOut.String()
		if err := c.printJSON(e); err != nil {
			return err
		}
	}
	switch {
	case end.Timeout:
		c.say("tine: the command was killed because its time was over; --timeout gives it more")
		return exitStatus(exitTimeout)
	case end.Signal != "":
		c.say("tine: the command was ended by SIG%s", end.Signal)
		return exitStatus(exitSignal + signalNumber(end.Signal))
	case *end.Exit != 0:
		return exitStatus(*end.Exit)
	}
	return nil
}

// signalNumber is the number of a signal; of those that end commands, where it is known.
func signalNumber(name string) int {
	return map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15}[name]
}
