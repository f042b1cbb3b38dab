package listfiles

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/storetest"
)

func TestLists(t *testing.T) {
	f := Folder{Dir: filepath.Join(t.TempDir(), "lists")}
	storetest.ServerLists(t, f, func() store.ServerLists { return f })
	if _, ok, err := (Folder{f.Dir, "elsewhere"}).ServerList(t.Context(), "big9", ""); ok || err != nil {
		t.Errorf("a list of another place: %v, %v", ok, err)
	}
	names, err := filepath.Glob(filepath.Join(f.Dir, "*"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if st, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
}

// Several gateways write the same list while others read it: each reads one that
// was written, whole.
func TestSeveralAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			f := Folder{Dir: dir}
			for n := range 50 {
				data := bytes.Repeat(fmt.Appendf(nil, "%d", i), 1000*(1+n%7))
				if err := f.PutServerList(t.Context(), store.ServerList{Key: "a", Data: data, Changed: time.Now()}); err != nil {
					t.Error(err)
				}
				got, ok, err := f.ServerList(t.Context(), "a", "")
				if err != nil || !ok || len(bytes.Trim(got.Data, string(got.Data[:1]))) != 0 {
					t.Errorf("%v, %v, %.40s", ok, err, got.Data)
				}
			}
		})
	}
	wg.Wait()
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 1 {
		t.Errorf("left are %q", names)
	}
}

func TestDamaged(t *testing.T) {
	f := Folder{Dir: t.TempDir()}
	if err := f.PutServerList(t.Context(), store.ServerList{Key: "a", Data: []byte(`{"tools":[]}`), Changed: time.Now()}); err != nil {
		t.Fatal(err)
	}
	name := f.file("a", "")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"cut": whole[:len(whole)-1], "cut in its head": whole[:5], "empty": nil, "changed": bytes.Replace(whole, []byte("tools"), []byte("fools"), 1)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if l, ok, err := f.ServerList(t.Context(), "a", ""); ok || !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%s: %+v, %v, %v", what, l, ok, err)
		}
	}
	if err := os.Rename(name, f.file("b", "")); err != nil {
		t.Fatal(err)
	}
	if l, ok, err := f.ServerList(t.Context(), "b", ""); ok || !errors.Is(err, store.ErrDamaged) {
		t.Errorf("the list of another key: %+v, %v, %v", l, ok, err)
	}
}

// What a gateway that was killed left half made goes, and what is being made stays.
func TestHalfMade(t *testing.T) {
	f := Folder{Dir: t.TempDir()}
	old, young := filepath.Join(f.Dir, "1"+partEnd), filepath.Join(f.Dir, "2"+partEnd)
	for _, name := range []string{old, young} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-2*partLasts)); err != nil {
		t.Fatal(err)
	}
	if err := f.PutServerList(t.Context(), store.ServerList{Key: "a", Changed: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the old one: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young one: %v", err)
	}
}
