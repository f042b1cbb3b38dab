package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/config"
)

// Exit codes.
const (
	exitFailed = 1 // a tool, a server or the gateway failed
	exitUsage  = 2 // the command line was wrong
)

// usageError is a mistake in how the program was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// exitStatus ends the program with a code after the error was printed.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// failures are the errors of several things, each of which failed by itself.
type failures []error

func (f failures) Error() string { return errors.Join(f...).Error() }

// report prints the error, once, and returns the exit code. With --json it is an
// object on standard output as well, unless that has its JSON already.
func (c *cli) report(err error, printed bool) int {
	if err == nil {
		return 0
	}
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	if c.flags.json && !printed {
		_ = c.printJSON(struct { // a failed write must not hide the error
			Error errorObject `json:"error"`
		}{c.errorObject(err)})
	}
	each, several := err.(failures)
	if !several {
		each = failures{err}
	}
	for i, err := range each {
		if i == mostNamed {
			c.say("tine: and %d more failed", len(each)-mostNamed)
			break
		}
		c.say("tine: %s", c.ownAll(describe(err)))
	}
	return exitCode(err)
}

func exitCode(err error) int {
	if several, ok := err.(failures); ok {
		code := 0
		for _, err := range several {
			code = max(code, exitCode(err))
		}
		return code
	}
	var ofExec execError
	switch {
	case errors.As(err, &ofExec):
		return exitNotRun
	case kindOf(err) == api.KindInvalid:
		return exitUsage
	}
	return exitFailed
}

// errorObject is an error for programs.
type errorObject struct {
	Kind       api.Kind `json:"kind"`
	Message    string   `json:"message"`
	Server     string   `json:"server,omitempty"`
	Retryable  bool     `json:"retryable"`
	RetryAfter int      `json:"retry_after,omitempty"`
}

func (c *cli) errorObject(err error) errorObject {
	o := errorObject{Kind: kindOf(err), Message: c.ownAll(describe(err)), Retryable: errors.Is(err, client.ErrNoGateway)}
	var (
		ae    *api.Error
		wrong *config.Error
	)
	if errors.As(err, &ae) {
		o.Server, o.Retryable, o.RetryAfter = ae.Server, ae.Retryable, ae.RetryAfter
	} else if errors.As(err, &wrong) {
		o.Kind = api.KindInvalid
	}
	return o
}

// kindOf is whose failure an error is.
func kindOf(err error) api.Kind {
	var (
		use *usageError
		ae  *api.Error
	)
	switch {
	case errors.As(err, &use):
		return api.KindInvalid
	case errors.As(err, &ae) && ae.Kind != "":
		return ae.Kind
	case errors.Is(err, context.DeadlineExceeded):
		return api.KindTimeout
	}
	return api.KindInfrastructure
}

// describe adds advice that the error's origin can't know.
func describe(err error) string {
	msg := err.Error()
	var ae *api.Error
	switch {
	case errors.As(err, &ae) && ae.Status == http.StatusUnauthorized:
		msg += "; give the gateway's token with --token-file or TINE_TOKEN"
	case errors.Is(err, context.Canceled):
		msg = "interrupted"
	}
	return msg
}

// noArgs, oneArg and upToOneArg are what commands take besides flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, got %q; see %s --help", short(cmd), args[0], cmd.CommandPath())
	}
	return nil
}

// oneArg wants one argument, and names it if it is missing.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s wants %s; see %s --help", short(cmd), what, cmd.CommandPath())
		}
		return upToOneArg(cmd, args)
	}
}

func upToOneArg(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("%s takes one argument, got %d; see %s --help", short(cmd), len(args), cmd.CommandPath())
	}
	return nil
}

// short is a command's path without the leading tine.
func short(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// group is a command that only has commands below it.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return usagef("unknown command %q for %q%s; see %s --help", name, cmd.CommandPath(), didYouMean(name, names), cmd.CommandPath())
}
