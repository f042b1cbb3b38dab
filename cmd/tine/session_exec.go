package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

// Exit codes of a command that did not exit by itself, as timeout(1) and shells have them.
const (
	exitTimeout = 124
	exitNotRun  = 125
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
exit code: 128 and the number of a signal that ended it, 124 if its time was over,
125 if it did not run, wrote too much or how it ended is unknown.
--json prints one object with the output and the exit code. Output that is not UTF-8
is in stdout64 and stderr64 there, in Base64.

The command is killed with all that it started when its time is over, when it is
interrupted or when it ends by itself. A fork of the session waits for it. The
command and its exit code are in the journal and in the trajectory of the session,
with the beginning and the end of its output.

With auth.rules the right to do this is exec. Servers inside of the gateway and servers
at a URL run no commands.

` + sessionIDs,
		Example: `  tine session exec 3f9a box -- ls -l /workspace
  tine session exec 3f9a box --cwd /workspace --timeout 10m -- make test
  tine session exec 3f9a box --stdin -- sh < setup.sh`,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			defer func() { err = notRun(err) }()
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
			defer func() { err = notRun(err) }()
			o.Server, o.Argv = args[1], args[2:]
			if o.Env, err = parseEnv(o.env); err != nil {
				return err
			}
			if err := spanFlags(map[string]*string{"timeout": &o.Timeout}); err != nil {
				return err
			}
			if o.stdin && c.stdin != nil {
				if o.Stdin64, err = readAll(c.stdin, "standard input", maxStdin); err != nil {
					return fmt.Errorf("%w; copy it in with tine session cp", err)
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
	f.BoolVarP(&o.stdin, "stdin", "i", false, "give it standard input, up to 16 MiB")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return notRun(cmd.Parent().FlagErrorFunc()(cmd, err)) })
	return cmd
}

// An execError is a failure of tine session exec itself, whose exit code differs from those
// of most commands.
type execError struct{ error }

func (e execError) Unwrap() error { return e.error }

// notRun marks an error that is not the exit status of a command.
func notRun(err error) error {
	if _, ended := err.(exitStatus); err == nil || ended {
		return err
	}
	return execError{err}
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
	if c.flags.json {
		return c.execJSON(ctx, g, id, in)
	}
	end, err := g.Exec(ctx, id, in, c.stdout, c.stderr)
	if err != nil {
		return g.explain(mendSession(err))
	}
	return c.ended(end)
}

// execJSON prints what a command wrote as one object, also if it was killed for writing too
// much.
func (c *cli) execJSON(ctx context.Context, g *gateway, id string, in api.ExecRequest) error {
	var out, errOut bytes.Buffer
	end, err := g.Exec(ctx, id, in, &out, &errOut)
	if err != nil && out.Len()+errOut.Len() == 0 {
		return g.explain(mendSession(err))
	}
	object := struct {
		api.ExecEvent
		Error *errorObject `json:"error,omitempty"`
	}{}
	if err != nil {
		err = g.explain(mendSession(err))
		why := c.errorObject(err)
		object.Error = &why
	} else {
		object.ExecEvent = *end
	}
	object.Stdout, object.Stdout64 = textOrBytes(out.Bytes())
	object.Stderr, object.Stderr64 = textOrBytes(errOut.Bytes())
	if failed := c.printJSON(object); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return c.ended(end)
}

// textOrBytes is output for JSON, which has no bytes that are not UTF-8.
func textOrBytes(b []byte) (text string, raw []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}

// ended tells how a command ended, unless by itself, and is its exit code.
func (c *cli) ended(end *api.ExecEvent) error {
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
