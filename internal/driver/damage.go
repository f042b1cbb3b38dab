package driver

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/workspace"
)

// A DamageError says that what is stored of a server or a workspace is not what
// was written, or is missing. It is an [api.Error] of kind lost; trying again does
// not help.
type DamageError struct {
	ours  *api.Error
	cause error
}

func (e *DamageError) Error() string { return e.ours.Message }

// Why names what is damaged, without whose it is and what to do.
func (e *DamageError) Why() string { return e.cause.Error() }

// Unwrap makes it an error of the API, and what caused it.
func (e *DamageError) Unwrap() []error { return []error{e.ours, e.cause} }

// Damaged makes a DamageError of one that says that stored data is damaged, and
// returns others as they are. server and session may be empty.
func Damaged(server, session string, err error) error {
	if err == nil || errors.As(err, new(*DamageError)) || !workspace.IsDamage(err) {
		return err
	}
	return damaged(server, session, err)
}

// DamagedState is Damaged for a state that was made, and so must be there.
func DamagedState(server, session string, err error) error {
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, new(*DamageError)) {
		return damaged(server, session, err)
	}
	return Damaged(server, session, err)
}

// Vanished is the damage of a state or a snapshot of which something that was made
// is not there any more. Somebody may put it back.
func Vanished(server, session, what string) error {
	return damaged(server, session, fmt.Errorf("%s is gone", what))
}

func damaged(server, session string, err error) error {
	who, whose := "the workspace", ""
	if server != "" {
		who = fmt.Sprintf("server %q", server)
	}
	if session != "" {
		whose = " of session " + session
	}
	return &DamageError{&api.Error{
		Kind: api.KindLost, Server: server,
		Message: fmt.Sprintf("%s%s: stored data is lost: %v; rewind the session to a snapshot from before, or open another", who, whose, err),
	}, err}
}
