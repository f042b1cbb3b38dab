package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writeVar); path != "" {
		writeForever(path)
	}
	goleak.VerifyTestMain(m)
}

func TestSuites(t *testing.T) {
	open := func(t testing.TB, place string) *DB {
		odd := "it's 100% #1?"
		if runtime.GOOS == "windows" {
			odd = "it's 100% #1"
		}
		return mustOpen(t, filepath.Join(place, odd, "tine.db"), schema)
	}
	t.Run("local", func(t *testing.T) {
		storetest.RunLocal(t, func(t testing.TB, place string) store.Local { return open(t, place) })
	})
	t.Run("shared", func(t *testing.T) {
		storetest.RunShared(t, func(t testing.TB, place string) store.Shared { return open(t, place) })
	})
}

func mustOpen(t testing.TB, path string, steps []string) *DB {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := open(context.Background(), path, steps)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPragmasAndModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tine.db")
	d := mustOpen(t, path, schema)
	defer d.Close()
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "1", "busy_timeout": "10000", "foreign_keys": "1"} {
		var got string
		if err := d.db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", pragma, got, err, want)
		}
	}
	if err := storetest.PutOverride(context.Background(), d, "a", store.Override{}); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(path + "*")
	if len(files) < 2 {
		t.Fatalf("no companions: %v", files)
	}
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
			t.Errorf("%s has mode %v: others can read it", f, st.Mode())
		}
	}
}

func TestFilesThatCannotBeOpened(t *testing.T) {
	filled := filepath.Join(t.TempDir(), "filled.db")
	d := mustOpen(t, filled, schema)
	for i := range 200 {
		if err := d.PutHandle(context.Background(), store.Handle{Key: fmt.Sprint(i), Dir: strings.Repeat("d", 500)}); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	whole, err := os.ReadFile(filled)
	if err != nil {
		t.Fatal(err)
	}
	torn := append([]byte(nil), whole...)
	for i := 4096 * 3; i < 4096*6; i++ {
		torn[i] = 0xEE
	}
	other := filepath.Join(t.TempDir(), "other.db")
	o := mustOpen(t, other, schema)
	if _, err := o.db.Exec("DROP TABLE schema_version"); err != nil {
		t.Fatal(err)
	}
	o.Close()
	foreign, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		content []byte
		want    string
	}{
		"not a database":    {[]byte(strings.Repeat("hello ", 1000)), "tine state restore"},
		"broken pages":      {torn, "tine state restore"},
		"cut short":         {whole[:len(whole)/2+100], "tine state restore"},
		"another program's": {foreign, "is a database of another program; move it away"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tine.db")
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := Open(context.Background(), path)
			if err == nil {
				d.Close()
				t.Fatal("it opened")
			}
			if !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got: %v", err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != string(test.content) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
	if _, err := Open(context.Background(), filepath.Join(t.TempDir(), "none", "tine.db")); err == nil {
		t.Error("a folder that is not there gave no error")
	}
}
