package main

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

// cli is the program as a value: everything it takes from the process is a
// field, so that tests run all of it in-process and several at once.
type cli struct {
	args      []string // without the program's name
	stdin     io.Reader
	stdout    io.Writer
	stderr    io.Writer
	lookupEnv func(string) (string, bool)
	now       func() time.Time
	after     func(time.Duration) <-chan time.Time
	version   string
	name      string // of this program in commands that it advises

	// executable is the path of this program.
	executable func() (string, error)

	// readHidden reads a line from the terminal without echo, and openBrowser opens
	// a web page.
	readHidden  func(context.Context) ([]byte, error)
	openBrowser func(url string) error

	connected []*client.Client // to gateways

	// probeSandbox makes a sandbox as a test.
	probeSandbox func(context.Context, sandbox.Options) []sandbox.Step

	// Terminals are found before anything wraps the streams. Width is 0 where
	// standard output is no terminal: lines are not cut then.
	inTerminal  bool
	outTerminal bool
	outColor    bool // whether it understands colours
	errTerminal bool
	width       int

	flags globalFlags
}

// globalFlags are those that every command takes.
type globalFlags struct {
	url       string
	token     string
	tokenFile string
	state     string
	json      bool
	noColor   bool
}

// newCLI returns the program of this process.
func newCLI() *cli {
	c := &cli{
		args:      os.Args[1:],
		stdin:     os.Stdin,
		stdout:    os.Stdout,
		stderr:    os.Stderr,
		lookupEnv: os.LookupEnv,
		now:       time.Now,
		after:     time.After,
		version:   version,
		name:      programName(os.Args[0]),

		executable:   os.Executable,
		probeSandbox: sandbox.Probe,
	}
	c.readHidden = readHiddenFrom(os.Stdin)
	c.openBrowser = func(url string) error { return openBrowser(runtime.GOOS, c.getenv, url) }
	c.inTerminal, _ = terminal(os.Stdin)
	c.outTerminal, c.width = terminal(os.Stdout)
	c.outColor = c.outTerminal && enableColor(os.Stdout)
	c.errTerminal, _ = terminal(os.Stderr)
	return c
}

// run executes the arguments and returns the exit code: 0 done, 1 a tool, a server
// or the gateway failed, 2 wrong use.
func (c *cli) run(ctx context.Context) int {
	out := &writer{w: c.stdout}
	c.stdout = out
	root := c.root()
	root.SetArgs(c.args)
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	err := root.ExecuteContext(ctx)
	for _, g := range c.connected {
		g.CloseIdleConnections()
	}
	if err == nil && out.err != nil {
		err = errors.New("write the output: " + out.err.Error())
	}
	return c.report(err, out.used)
}

func (c *cli) root() *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "tine",
		Short: "The MCP gateway whose sessions fork",
		Long: `Tine is one MCP endpoint in front of many MCP servers.

  tine serve      runs the gateway
  tine stdio      serves a client that speaks stdio
  tine rlm        serves one client a Python kernel, over stdio
  the others      inspect and use a running gateway

Commands find the running gateway by --url or TINE_URL, else by the file that it
keeps in its state folder, else at the address in the config, else at the default
address.

With --json an error is printed as JSON on standard output, in place of the result:
{"error": {"kind", "message", "server", "retryable", "retry_after"}}. Its message
is still printed on standard error. The exit code is 1 when a tool, a server or
the gateway failed, and 2 when the command or its arguments were invalid.`,
		Example: `  tine serve
  tine tools
  tine call time__get_current_time timezone=Europe/Vienna
  tine session open`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // an unknown command is RunE's to report
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return unknownCommand(cmd, args[0])
			case showVersion:
				return c.printVersion()
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&showVersion, "version", false, "print the version of this program")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		for _, arg := range c.args { // flags behind a wrong one were not parsed
			if arg == "--" {
				break
			}
			c.flags.json = c.flags.json || arg == "--json"
		}
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})

	f := root.PersistentFlags()
	f.StringVar(&c.flags.url, "url", "", "URL of the gateway (env TINE_URL)")
	f.StringVar(&c.flags.token, "token", "", "bearer token for the gateway (env TINE_TOKEN; --token-file is safer, because process lists show arguments)")
	f.StringVar(&c.flags.tokenFile, "token-file", "", "file that holds the bearer token")
	f.StringVar(&c.flags.state, "state", "", "state folder (env TINE_STATE)")
	f.BoolVar(&c.flags.json, "json", false, "print JSON")
	f.BoolVar(&c.flags.noColor, "no-color", false, "do not print colours (env NO_COLOR)")

	root.AddCommand(
		newServeCmd(c),
		newStdioCmd(c),
		newRLMCmd(c),
		newRLMHelperCmd(c),
		newOrchestratorCmd(c),
		newStatusCmd(c),
		newServersCmd(c),
		newToolsCmd(c),
		newCallCmd(c),
		newSessionCmd(c),
		newRunCmd(c),
		newRunsCmd(c),
		newCallsCmd(c),
		newEventsCmd(c),
		newReplayCmd(c),
		newLogsCmd(c),
		newLoginCmd(c),
		newTokenCmd(c),
		newStateCmd(c),
		newAgentCmd(c),
		newConfigCmd(c),
		newDoctorCmd(c),
		newVersionCmd(c),
		newCompletionCmd(c),
	)
	c.rename(root)
	return root
}

// getenv returns a variable, empty when it is not set.
func (c *cli) getenv(key string) string {
	v, _ := c.lookupEnv(key)
	return v
}

// writer remembers the first error of a stream, so that a full disk does not look
// like success, and whether anything was written.
type writer struct {
	w    io.Writer
	err  error
	used bool
}

func (w *writer) Write(p []byte) (int, error) {
	w.used = w.used || len(p) > 0
	n, err := w.w.Write(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}
