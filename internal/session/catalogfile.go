package session

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/store"
)

// catalogFile is where the servers behind a key lie besides the store, for
// sessions that are newer than a backup of it.
func catalogFile(states, key string) string {
	return filepath.Join(states, "catalogs", filepath.Base(key)+".json")
}

// What the store has behind a key.
const (
	noServers    = iota
	otherServers // than those that the key is the hash of
	rightServers
)

// findCatalog returns the servers behind a key, and what the store has: where those are
// not the right ones, the servers are those of the file; nil where that is not right
// either, so that sessions of the key are not served.
func findCatalog(ctx context.Context, st store.Catalogs, states, key string) (servers json.RawMessage, stored int, err error) {
	if key == "" {
		return nil, noServers, nil
	}
	servers, known, err := st.Catalog(ctx, key)
	switch {
	case err != nil:
		return nil, noServers, err
	case known && catalogIs(key, servers):
		return servers, rightServers, nil
	case known:
		stored = otherServers
	}
	servers, err = os.ReadFile(catalogFile(states, key))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !catalogIs(key, servers) {
		return nil, stored, nil
	}
	return servers, stored, err
}
