package upstream

import (
	"errors"

	"github.com/tine-mcp/tine/api"
)

// sizeError is the failure of a call whose answer passed the limit of messages.
type sizeError struct{ error }

func (e sizeError) Unwrap() error { return e.error }

func tooLarge(server string, err error) error {
	return sizeError{failure(api.KindInfrastructure, server, false, "%v; limits.message can raise that", err)}
}

// TooLarge reports whether a call failed because of the size of its answer. The
// server is well then: it did what it was asked for.
func TooLarge(err error) bool {
	var s sizeError
	return errors.As(err, &s)
}
