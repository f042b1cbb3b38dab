package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/storetest"
)

// The file says what the database says, also after concurrent changes of tokens.
func TestAccessFile(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	path := filepath.Join(dir, "tine.db")
	d, err := OpenState(ctx, path, "--state /x")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprint("t", i)
			if err := storetest.PutToken(ctx, d, store.Token{Name: name}); err != nil {
				t.Error(err)
			}
			if err := storetest.DeleteToken(ctx, d, name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	check := func(changes int64, guarded bool) {
		t.Helper()
		if a, ok, err := ReadAccess(dir); err != nil || !ok || a.Changes != changes || a.Guarded != guarded || a.Content == "" {
			t.Errorf("the file says %+v, %v, %v", a, ok, err)
		}
	}
	check(16, false)
	if err := storetest.PutToken(ctx, d, store.Token{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	check(17, true)
	var mode int
	if err := d.db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&mode); err != nil || mode != 1 {
		t.Errorf("synchronous is %d, %v", mode, err)
	}
	// A change that can't be noted is not made.
	part := filepath.Join(dir, AccessFile+PartSuffix)
	if err := os.Mkdir(part, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := storetest.DeleteToken(ctx, d, "a"); err == nil {
		t.Error("it was deleted without a note")
	}
	if all, err := d.Tokens(ctx); err != nil || len(all) != 1 {
		t.Errorf("there are %v, %v", all, err)
	}
	if err := errors.Join(os.Remove(part), d.Close()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, AccessFile)); err != nil || info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("it is %v, %v", info, err)
	}

	// A database that is behind is refused, and one that is ahead is right.
	if err := WriteAccess(dir, Access{Changes: 18, Guarded: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenState(ctx, path, "--state /x"); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "`tine state restore --from tine.db --state /x`") {
		t.Errorf("got %v", err)
	}
	if err := WriteAccess(dir, Access{Changes: 16, Guarded: false}); err != nil {
		t.Fatal(err)
	}
	if d, err = OpenState(ctx, path, ""); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	check(17, true)
}

// After a restore that may have lost tokens all callers are refused.
func TestRestoreAccess(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct {
		name         string
		file         Access
		known, token bool
		lost         bool
	}{
		{"there were tokens", Access{Changes: 7, Guarded: true}, true, false, true},
		{"there were none", Access{Changes: 7, Guarded: false}, true, false, false},
		{"unknown", Access{}, false, false, true},
		{"some came back", Access{Changes: 7, Guarded: true}, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Open(ctx, filepath.Join(t.TempDir(), "tine.db"))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if c.token {
				if err := storetest.PutToken(ctx, d, store.Token{Name: "a", Unconfirmed: true}); err != nil {
					t.Fatal(err)
				}
			}
			is := func(want bool) {
				t.Helper()
				if lost, err := d.TokensLost(ctx); err != nil || lost != want {
					t.Errorf("lost: %v, %v", lost, err)
				}
			}
			for range 2 {
				now, err := d.RestoreAccess(ctx, c.file, c.known)
				if err != nil || now.Changes <= c.file.Changes || now.Guarded != (c.lost || c.token) {
					t.Errorf("got %+v, %v", now, err)
				}
				is(c.lost)
				c.file = now
			}
			if err := storetest.PutToken(ctx, d, store.Token{Name: "b", Unconfirmed: true}); err != nil {
				t.Fatal(err)
			}
			is(c.lost)
			if err := storetest.PutToken(ctx, d, store.Token{Name: "b"}); err != nil {
				t.Fatal(err)
			}
			is(false)
		})
	}
}

// Tokens and switches that are not those that were written last are refused: a flipped
// bit could make a viewer an operator.
func TestAccessThatChangedByItself(t *testing.T) {
	ctx := t.Context()
	for _, change := range []string{
		"UPDATE tokens SET role = 'operator'", "UPDATE tokens SET hash = 'other'", "UPDATE tokens SET expires = expires + 1",
		"UPDATE tokens SET unconfirmed = 0", "DELETE FROM tokens", "UPDATE overrides SET enabled = 1", "",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "tine.db")
		no := false
		d, err := OpenState(ctx, path, "")
		if err == nil {
			err = errors.Join(
				storetest.PutToken(ctx, d, store.Token{Name: "a", Hash: "h", Role: "viewer", Expires: time.Now(), Unconfirmed: true}),
				storetest.PutOverride(ctx, d, "s", store.Override{Enabled: &no}))
		}
		if err == nil && change != "" {
			_, err = d.db.ExecContext(ctx, change)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d, err = OpenState(ctx, path, "")
		if change == "" {
			if err != nil {
				t.Error(err)
			}
			d.Close()
			continue
		}
		if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "tine state restore") {
			t.Errorf("%s: %v", change, err)
		}
		// A file of an earlier version says nothing of it.
		if err := WriteAccess(dir, Access{Changes: 2, Guarded: true}); err != nil {
			t.Fatal(err)
		}
		if d, err = OpenState(ctx, path, ""); err != nil {
			t.Fatal(err)
		}
		d.Close()
	}
}
