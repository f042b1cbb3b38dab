package driver

import (
	"context"
	"errors"
	"io"
)

// MethodExec is the method of commands in the journal, where they stand among the calls
// of their server.
const MethodExec = "tine/exec"

// MethodPut is the method of files that were copied in.
const MethodPut = "tine/put"

// An Execer is an instance beside whose server a command can be run: where the server
// runs, with the files that it sees.
type Execer interface {
	// Exec runs a command and returns when it has ended, with all that it started. What
	// the command leaves running is killed, and so is all of it when ctx ends, when the
	// instance ends or is left, or when a write of its output fails. The error is of the
	// running and not of the command: one that exits with a status, or by a signal, is
	// no error, and one that was killed because ctx ended has the error of ctx.
	//
	// The spec is the one that the instance was started or adopted with. The instance
	// may not be held meanwhile.
	Exec(ctx context.Context, spec Spec, c Command) (Exit, error)
}

// A Command is a program with its arguments, to be run beside a server.
type Command struct {
	Argv []string
	// Env is added to the environment that the server was started with.
	Env map[string]string
	// Cwd is a path as the server sees it; empty for the server's own.
	Cwd string
	// User is a name or UID, with an optional GID after a colon; empty for the server's.
	User string
	// Stdin is what the command reads; nil for an empty input. It may be read from
	// after Exec has returned, where the command did not want all of it.
	Stdin io.Reader
	// Stdout and Stderr get what the command writes, each from one goroutine. A slow
	// one slows the command down.
	Stdout, Stderr io.Writer
}

// Exit says how a command ended: with a status, or by a signal such as KILL.
type Exit struct {
	Code   int
	Signal string
}

// ErrNotFound reports that the program of a command is not there. The error's text
// names it.
var ErrNotFound = errors.New("no such program")

// ErrCommand reports that a command can't be run as it is asked for, and that its caller
// can mend that: the folder or the user is not there.
var ErrCommand = errors.New("the command can't be run like that")
