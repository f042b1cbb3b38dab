//go:build unix

package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/torture"
)

// TestDuckDBForks forks a database whose parent is written to all the time.
func TestDuckDBForks(t *testing.T) {
	t.Parallel()
	env := presetStandIns(t)
	needRoom(t, torture.Or[uint64](1e9, 8e9))
	g, w := startDuck(t, "driver: process, state: {data: TEMPLATE}", env...)

	// No client writes: the files of a child are those of the parent, byte by byte. The
	// server opens them with the first query.
	rows, err := w.query(t.Context(), w.parent, "SELECT path FROM duckdb_databases() WHERE database_name = 'data'")
	if err != nil {
		t.Fatal(err)
	}
	var file string
	if err := decodeInto(rows[0][0], &file); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(file, w.parent) {
		t.Fatalf("the parent's database is %s", file)
	}
	child := fork(t, w.c, w.parent, 1)[0].ID
	for _, name := range []string{file, file + ".wal"} {
		copied := strings.ReplaceAll(name, w.parent, child)
		want, size := fileSum(t, name)
		if got, _ := fileSum(t, copied); got != want || size == 0 {
			t.Errorf("%s is no copy of %s, which has %d bytes", copied, name, size)
		}
	}
	if steps, err := w.holds(t.Context(), child, w.parent); err != nil || steps != w.acked.Load() {
		t.Errorf("the child has %d steps of %d: %v", steps, w.acked.Load(), err)
	}
	if err := w.c.CloseSession(t.Context(), child); err != nil {
		t.Error(err)
	}

	stop := w.write()
	for range torture.Or(1, 5) {
		w.batch(torture.Or(4, 10))
	}
	stop()
	w.finish(g)
}

func fileSum(t testing.TB, name string) (sum string, size int64) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), size
}

// needRoom ends the test where the disk has less free space: as skipped on a
// laptop, as failed in CI.
func needRoom(t testing.TB, bytes uint64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &st); err != nil {
		t.Fatal(err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < bytes {
		if os.Getenv("CI") != "" {
			t.Fatalf("%d bytes are free, %d are needed", free, bytes)
		}
		t.Skipf("%d bytes are free, %d are needed; set TMPDIR to a disk with more", free, bytes)
	}
}
