package session

import (
	"context"
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

// restoreCatalog puts the servers behind a key into the store where it lacks them,
// or has others than the key is the hash of, which it reports. Where the file with
// them is not right either, sessions of that key are not served.
func restoreCatalog(ctx context.Context, st store.Store, states, key string) (mended bool, err error) {
	if key == "" {
		return false, nil
	}
	have, known, err := st.Catalog(ctx, key)
	if err != nil || known && catalogIs(key, have) {
		return false, err
	}
	servers, err := os.ReadFile(catalogFile(states, key))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !catalogIs(key, servers) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return known, st.PutCatalog(ctx, key, servers)
}
