package upstream

import (
	"encoding/json"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// ownError reads an error of the API from the JSON-RPC error of a server that is
// part of Tine; nil where it is none. That a state is lost says nothing about how
// the server is, and no other attempt helps.
func ownError(raw []byte) error {
	e := wire.ParseError(raw)
	if e.Code != wire.CodeTine {
		return nil
	}
	var data map[string]*api.Error
	if err := json.Unmarshal(e.Data, &data); err != nil || data[wire.MetaTineError] == nil {
		return nil
	}
	ours := data[wire.MetaTineError]
	if ours.Kind == api.KindLost {
		return goneError{ours}
	}
	return ours
}

// unprepared is why a server's state can't be prepared. A lost state says nothing
// about the server's health.
func unprepared(err error) error {
	if err != nil && Kind(err) == api.KindLost {
		return goneError{err}
	}
	return err
}
