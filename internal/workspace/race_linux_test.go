package workspace

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSwappedDirectory has a program swap a directory for a link that leads out,
// and back, while others work below it.
func TestSwappedDirectory(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	inside := filepath.Join(dir, "inside")
	at, link := filepath.Join(inside, "at"), filepath.Join(inside, "link")
	for _, d := range []string{outside, inside, at} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openFolder(inside)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	stop := make(chan struct{})
	var swapper, workers sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var reached, escaped [2]int
	for n := range reached {
		workers.Go(func() {
			own := strconv.Itoa(n)
			for i := range 1000 {
				switch err := write(f, "at/f"+own, "x"); class(err) {
				case "ok":
					reached[n]++
				case "escape":
					escaped[n]++
				case "not a directory", "loop": // it was another when it was looked at
				default:
					t.Error(err)
				}
				f.Create("at/new"+own, strings.NewReader(""), 0)
				f.MkdirAll("at/d" + strconv.Itoa(i%3))
				f.Rename("at/f"+own, "at/g"+own)
				f.Symlink("x", "at/l")
				f.Remove("at/secret")
				f.RemoveAll("at/g" + own)
				f.Rename("at/secret", "stolen")
				if text, err := read(f, "at/secret"); err == nil {
					t.Errorf("read outside: %q", text)
				}
				if _, err := f.Stat("at/secret"); err == nil {
					t.Error("saw outside")
				}
				if list, err := f.ReadDir("at"); err == nil {
					for _, i := range list {
						if i.Name == "secret" {
							t.Error("listed outside")
						}
					}
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	swapper.Wait()
	if reached[0]+reached[1] == 0 || escaped[0]+escaped[1] == 0 {
		t.Errorf("%v writes succeeded and %v were refused: nothing was tried", reached, escaped)
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside has %v, %v", entries, err)
	}
}
