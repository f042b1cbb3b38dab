package upstream

import (
	"errors"

	"github.com/tine-mcp/tine/api"
)

// unsentError is the failure of a request of which nothing reached the server,
// so that it may be made again without harm.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// NotSent marks an error as one of a request of which nothing reached the
// server.
func NotSent(err error) error {
	var ours *api.Error
	if err == nil || Unsent(err) || StateLost(err) || !errors.As(err, &ours) {
		return err
	}
	return unsentError{ours}
}

// goneError is the failure of a start or a call because the server's memory is
// gone: another attempt does not help.
type goneError struct{ error }

func (e goneError) Unwrap() error { return e.error }

// StateLost reports whether a call failed because its server's memory is gone. That
// says nothing about the server's health.
func StateLost(err error) bool {
	var g goneError
	return errors.As(err, &g)
}

// Unsent reports whether nothing of the request reached the server.
func Unsent(err error) bool {
	var u unsentError
	return errors.As(err, &u) || IsClosed(err)
}

// deathError is the failure of a call that was pending when its connection ended.
type deathError struct {
	error
	conn string
}

func (e deathError) Unwrap() error { return e.error }

// Died marks an error as that of a call that was pending when its connection ended.
func Died(err *api.Error, conn string) error { return deathError{err, conn} }

// Death names the connection whose end made a call fail; empty if it failed
// otherwise. However many calls were pending, it is one failure of the server.
func Death(err error) string {
	var d deathError
	if errors.As(err, &d) {
		return d.conn
	}
	return ""
}

// forgotError is the failure of a call whose instance ended and lost its memory.
type forgotError struct{ error }

func (e forgotError) Unwrap() error { return e.error }

// Forgot reports whether a call failed because its instance ended: another
// instance, which lacks the memory, would answer if the call were repeated.
func Forgot(err error) bool {
	var f forgotError
	return errors.As(err, &f)
}

// Gone makes the error of a call that was not made because its server's memory is
// gone.
func Gone(err *api.Error) error { return goneError{err} }

// Kind is the kind of an error of a call; empty for one that is not ours.
func Kind(err error) api.Kind {
	var ours *api.Error
	if errors.As(err, &ours) {
		return ours.Kind
	}
	return ""
}
