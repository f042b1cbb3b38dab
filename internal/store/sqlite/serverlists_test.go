package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// TestDamagedServerList flips a byte of a list behind the store's back.
func TestDamagedServerList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := mustOpen(t, filepath.Join(t.TempDir(), "tine.db"), schema)
	defer d.Close()
	if err := d.PutServerList(ctx, store.ServerList{Key: "k", Data: []byte(`{"tools":["a"]}`), Changed: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := d.exec(ctx, "damage", "UPDATE server_lists SET data = ?", []byte(`{"tools":["b"]}`)); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := d.ServerList(ctx, "k", ""); ok || !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a list that was changed by itself: %v, %v", ok, err)
	}
}
