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

// Whose names the owner of stored data. Any of it may be empty.
type Whose struct {
	Server  string
	Session string
	// Shared is where the state of a server lies that several sessions use, and
	// that no rewind brings back; empty for that of one session.
	Shared string
}

// Whose names the owner of the spec's state.
func (s *Spec) Whose() Whose {
	w := Whose{Server: s.Server, Session: s.Session}
	if s.Shared {
		w.Shared = s.State
	}
	return w
}

// Damaged makes a DamageError of one that says that stored data is damaged, and
// returns others as they are.
func Damaged(w Whose, err error) error {
	if err == nil || errors.As(err, new(*DamageError)) || !workspace.IsDamage(err) {
		return err
	}
	return damaged(w, err, "put it back from a backup")
}

// DamagedState is Damaged for a state that was made, and so must be there.
func DamagedState(w Whose, err error) error {
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, new(*DamageError)) {
		return damaged(w, err, "put it back")
	}
	return Damaged(w, err)
}

// Vanished is the damage of a state or a snapshot of which something that was made
// is not there any more.
func Vanished(w Whose, what string) error {
	return damaged(w, fmt.Errorf("%s is gone", what), "put it back")
}

// AnewSuffix ends the name of a file beside a shared state with which an operator asks
// for an empty one in its place.
const AnewSuffix = "~anew"

func damaged(w Whose, err error, mend string) error {
	who, whose := "the workspace", ""
	if w.Server != "" {
		who = fmt.Sprintf("server %q", w.Server)
	}
	if w.Session != "" {
		whose = " of session " + w.Session
	}
	switch {
	case w.Shared != "":
		whose = ", which several sessions share"
		mend += ", or make the empty file " + w.Shared + AnewSuffix + " to have the server begin anew; a rewind does not bring it back"
	case w.Session != "":
		mend += ", rewind the session to a snapshot from before, or go on in another one: `tine session close " + w.Session + "` gives this one up and removes what is left of it"
	default:
		mend += ", rewind the session to a snapshot from before, or open another"
	}
	return &DamageError{&api.Error{
		Kind: api.KindLost, Server: w.Server,
		Message: fmt.Sprintf("%s%s: stored data is lost: %v; %s", who, whose, err, mend),
	}, err}
}
