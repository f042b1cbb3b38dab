// Package sqlitetest opens databases for tests of what is kept in them.
package sqlitetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/store/sqlite"
)

// Open opens the database tine.db of a folder. A new one begins as a copy of an
// empty one: making the tables takes longer than most tests. The caller closes it.
func Open(t testing.TB, dir string) *sqlite.DB {
	t.Helper()
	path := filepath.Join(dir, "tine.db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		empty, err := blank()
		if err == nil {
			err = os.WriteFile(path, empty, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := sqlite.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

var blank = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "blank")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tine.db")
	db, err := sqlite.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})
