package image

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/driver/image/imagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	file   = imagetest.File
	object = imagetest.Object
)

func dir(name string) file      { return file{Name: name, Kind: tar.TypeDir, Mode: 0o755} }
func sym(name, to string) file  { return file{Name: name, Kind: tar.TypeSymlink, Text: to, Mode: 0o777} }
func hard(name, to string) file { return file{Name: name, Kind: tar.TypeLink, Text: to, Mode: 0o644} }

var (
	reg    = imagetest.Reg
	tarOf  = imagetest.Tar
	zip    = imagetest.Zip
	hexOf  = imagetest.Hex
	toJSON = imagetest.JSON
)

// runs is what the images here run.
var runs = object{"Entrypoint": []string{"/srv"}, "Cmd": []string{"-x"}, "Env": []string{"PATH=/bin", "A=b"}, "WorkingDir": "/app", "User": "1000"}

func configOf(t testing.TB, layers ...[]byte) string { return imagetest.Config(t, runs, layers...) }

func saved(t testing.TB, layers ...[]byte) []byte { return imagetest.Saved(t, runs, layers...) }

func oci(t testing.TB, change func(files map[string]string, index *[]object), layers ...[]byte) []byte {
	return imagetest.OCI(t, runs, change, layers...)
}

// place writes an archive that was written a while ago.
func place(t testing.TB, b []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image.tar")
	replaceWith(t, name, b, time.Hour)
	return name
}

func replaceWith(t testing.TB, name string, b []byte, ago time.Duration) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-ago)
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func newStore(t testing.TB) *Store {
	return &Store{Dir: filepath.Join(t.TempDir(), "images"), sync: func(string) error { return nil }}
}

// describe lists a tree: directories with a slash, links with where they lead,
// files with what is in them.
func describe(t testing.TB, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == root {
			return err
		}
		name, _ := filepath.Rel(root, at)
		switch {
		case d.IsDir():
			name += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(at)
			name += "->" + to
		default:
			b, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			name += "=" + string(b)
		}
		lines = append(lines, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, " ")
}

// alone checks that nothing that is half is left in a store.
func alone(t testing.TB, s *Store) {
	t.Helper()
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".part") {
			t.Errorf("%s is left over", e.Name())
		}
	}
}
