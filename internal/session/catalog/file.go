package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/store"
)

// File is where the servers behind a key lie besides the store, for
// sessions that are newer than a backup of it.
func File(states, key string) string {
	return filepath.Join(states, "catalogs", filepath.Base(key)+".json")
}

// partSuffix ends the name of a file that is being written.
const partSuffix = ".part"

// What the store has behind a key.
const (
	noServers    = iota
	OtherServers // than those that the key is the hash of
	rightServers
)

// Find returns the servers behind a key, and what the store has: where those are
// not the right ones, the servers are those of the file; nil where that is not right
// either, so that sessions of the key are not served.
func Find(ctx context.Context, st store.Catalogs, states, key string) (servers json.RawMessage, stored int, err error) {
	if key == "" {
		return nil, noServers, nil
	}
	servers, known, err := st.Catalog(ctx, key)
	switch {
	case err != nil:
		return nil, noServers, err
	case known && Is(key, servers):
		return servers, rightServers, nil
	case known:
		stored = OtherServers
	}
	servers, err = os.ReadFile(File(states, key))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !Is(key, servers) {
		return nil, stored, nil
	}
	return servers, stored, err
}

// Is reports whether servers are those of a key.
func Is(key string, servers []byte) bool {
	var list []json.RawMessage
	return json.Unmarshal(servers, &list) == nil && keyOfPins(list) == key
}

// ErrNotRecorded reports servers that are no longer recorded.
var ErrNotRecorded = errors.New("the servers it was made with are not recorded any more")

// A RecordError is ErrNotRecorded with the reason and the file to put back.
type RecordError struct{ Why, File string }

func (e *RecordError) Error() string {
	return ErrNotRecorded.Error() + ": " + e.Why + "; put " + e.File + " back from a backup"
}
func (e *RecordError) Unwrap() error { return ErrNotRecorded }
