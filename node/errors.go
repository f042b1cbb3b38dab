package node

import (
	"errors"
	"fmt"
	"net/url"
)

// The kinds of errors of a call, for [errors.Is].
var (
	// ErrNotSent: the tool did not run, as the call never reached the server or
	// the server refused it unseen.
	ErrNotSent = errors.New("the call was not sent")

	// ErrOutcomeUnknown: the call was sent, or may have been, and no answer came.
	// The tool may have run.
	ErrOutcomeUnknown = errors.New("the outcome of the call is unknown")

	// ErrTool: the server or the tool answered with an error. If it was a JSON-RPC
	// error, [errors.As] finds the [jsonrpc.Error].
	ErrTool = errors.New("the tool failed")
)

// A callError has its kind and its cause, and names the tool and the server.
type callError struct {
	kind         error
	tool, server string
	cause        error
}

func (e *callError) Error() string {
	at := ""
	if e.server != "" {
		at = " at " + e.server
	}
	return fmt.Sprintf("tool %q%s: %v: %v", e.tool, at, e.kind, e.cause)
}

func (e *callError) Unwrap() []error { return []error{e.kind, e.cause} }

// errClosed is the cause of what fails because the caller closed the server.
var errClosed = errors.New("the connection was closed with Close")

// withoutURL is err without the URL that a client of HTTP has in its errors, with its
// query and password. Where it is shown, the server is named before it.
func withoutURL(err error) error {
	for {
		var u *url.Error
		if !errors.As(err, &u) {
			return err
		}
		err = u.Err
	}
}
