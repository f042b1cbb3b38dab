package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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

// kindOf is the kind of a call's error, or nil.
func kindOf(err error) error {
	for _, kind := range []error{ErrNotSent, ErrOutcomeUnknown, ErrTool} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}

// A callError has its kind, if it has one, and its cause, and names the tool and the
// server.
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
	return e.about(at, e.cause.Error())
}

func (e *callError) about(at, why string) string {
	if e.kind != nil {
		why = e.kind.Error() + ": " + why
	}
	return fmt.Sprintf("tool %q%s: %s", e.tool, at, why)
}

func (e *callError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.cause}
	}
	return []error{e.kind, e.cause}
}

func (e *callError) outward() string {
	why := outward(e.cause)
	if e.server != "" && !harmless(e.cause) {
		why = "the log of the program that serves it says why"
	}
	return e.about("", why)
}

// A setupError is an error of connecting to a server.
type setupError struct {
	server string
	cause  error
}

func (e *setupError) Error() string { return fmt.Sprintf("connecting to %s: %v", e.server, e.cause) }
func (e *setupError) Unwrap() error { return e.cause }
func (e *setupError) outward() string {
	return "connecting to a server failed; the log of the program that serves this says why"
}

// A missingError names a tool that a server does not have.
type missingError struct {
	server, tool string
	has          []string
}

func (e *missingError) Error() string {
	return fmt.Sprintf("%s has no tool %q; it has: %s", e.server, e.tool, strings.Join(e.has, ", "))
}

func (e *missingError) outward() string { return fmt.Sprintf("there is no tool %q", e.tool) }

// An inward error says what is for this program: where a server is, and what a program
// printed. Clients of a served node get what outward says.
type inward interface {
	error
	outward() string
}

// outward is what clients are told of an error: its text, with inward errors in it
// replaced.
func outward(err error) string {
	text := err.Error()
	var within func(error)
	within = func(err error) {
		switch e := err.(type) {
		case inward:
			text = strings.ReplaceAll(text, e.Error(), e.outward())
		case interface{ Unwrap() error }:
			if next := e.Unwrap(); next != nil {
				within(next)
			}
		case interface{ Unwrap() []error }:
			for _, next := range e.Unwrap() {
				within(next)
			}
		}
	}
	within(err)
	return text
}

// tell is outward, and logs what it leaves out.
func tell(tool string, err error) string {
	text := outward(err)
	if text != err.Error() {
		log.Printf("node: tool %q failed: %v", tool, err)
	}
	return text
}

// The kinds of errors in the data of an error of JSON-RPC, so that they come through a
// served node. Without one it is ErrTool.
const kindKey = "tine/node"

var kindNames = map[error]string{ErrNotSent: "not sent", ErrOutcomeUnknown: "outcome unknown"}

func kindData(err error) json.RawMessage {
	name, ok := kindNames[kindOf(err)]
	if !ok {
		return nil
	}
	data, _ := json.Marshal(map[string]string{kindKey: name})
	return data
}

// kindIn is the kind in the data of an error.
func kindIn(wire *jsonrpc.Error) error {
	var data map[string]json.RawMessage
	if wire == nil || json.Unmarshal(wire.Data, &data) != nil {
		return ErrTool
	}
	for kind, name := range kindNames {
		if string(data[kindKey]) == `"`+name+`"` {
			return kind
		}
	}
	return ErrTool
}

// A localError says nothing of the server or the connection.
type localError string

func (e localError) Error() string { return string(e) }

const (
	errClosed         = localError("the connection was closed with Close")
	errNoResult       = localError("the function returned no result")
	errNoObjectResult = localError("the result is not a JSON object")
	errNotJSON        = localError("arguments: not valid JSON")
	errNoObject       = localError("arguments: not a JSON object")
)

// harmless reports whether clients may read an error of a consumed server.
func harmless(err error) bool {
	switch err.(type) {
	case localError, toolError, timeoutError: // and nothing around them
		return true
	}
	return err == context.Canceled || err == context.DeadlineExceeded
}

// A toolError is what a tool said in a result.
type toolError string

func (e toolError) Error() string { return string(e) }

// An endedError is the end of a context with a cause that its owner gave.
type endedError struct{ cause, ctx error }

func (e *endedError) Error() string   { return e.cause.Error() }
func (e *endedError) Unwrap() []error { return []error{e.cause, e.ctx} }

// ended is why a context has ended. It is [context.Canceled] or
// [context.DeadlineExceeded], also with a cause.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, ctx.Err()) {
		return cause
	}
	return &endedError{cause, ctx.Err()}
}

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
