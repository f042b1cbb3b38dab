// Package listfiles keeps the lists of servers in a folder, one file each, for
// gateways without a lasting database: tine stdio on its own. Any number of gateways
// may use the folder at once, since a file is written beside its place and renamed.
package listfiles

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// A Folder keeps lists. It is made with the first one.
type Folder struct {
	Dir string
	// Place is the working directory of the gateway. A program that is started there
	// may list what it finds there.
	Place string
}

var _ store.ServerLists = Folder{}

const (
	fileEnd = ".list"
	partEnd = ".part"
	// partLasts is how long a file may take to write. An older one was left by a
	// process that was killed.
	partLasts = time.Hour
)

// head is the first line of a file; the list follows it.
type head struct {
	Place     string    `json:"place"`
	Key       string    `json:"key"`
	Principal string    `json:"principal"`
	Changed   time.Time `json:"changed"`
	Sum       string    `json:"sum"` // of the list
}

func (f Folder) file(key, principal string) string {
	sum := sha256.Sum256([]byte(f.Place + "\x00" + key + "\x00" + principal))
	return filepath.Join(f.Dir, hex.EncodeToString(sum[:])+fileEnd)
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// PutServerList implements store.ServerLists.
func (f Folder) PutServerList(_ context.Context, l store.ServerList) error {
	if err := f.put(l); err != nil {
		return fmt.Errorf("write the list of a server: %w", err)
	}
	return nil
}

func (f Folder) put(l store.ServerList) (err error) {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	first, err := json.Marshal(head{f.Place, l.Key, l.Principal, l.Changed, sumOf(l.Data)})
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(f.Dir, "*"+partEnd) // which only its owner may read
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // unless it was renamed
	_, err = part.Write(slices.Concat(first, []byte("\n"), l.Data))
	err = errors.Join(err, part.Sync(), part.Close())
	if err == nil {
		err = os.Chtimes(part.Name(), time.Time{}, l.Changed)
	}
	if err == nil {
		err = os.Rename(part.Name(), f.file(l.Key, l.Principal))
	}
	if err != nil {
		return err
	}
	return f.bound()
}

// bound removes the oldest lists if there are too many, and unfinished files.
func (f Folder) bound() error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return err
	}
	var lists []fs.FileInfo
	for _, e := range entries {
		st, err := e.Info()
		switch {
		case err != nil: // another gateway has removed it
		case strings.HasSuffix(e.Name(), fileEnd):
			lists = append(lists, st)
		case strings.HasSuffix(e.Name(), partEnd) && time.Since(st.ModTime()) > partLasts:
			os.Remove(filepath.Join(f.Dir, e.Name()))
		}
	}
	slices.SortFunc(lists, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	size := int64(0)
	for i, st := range lists {
		if size += st.Size(); i >= store.MostServerLists || size > maxBytes {
			os.Remove(filepath.Join(f.Dir, st.Name()))
		}
	}
	return nil
}

// maxBytes bounds the files, each with its head.
const maxBytes = store.MostServerListBytes + 1<<20

// DeleteServerList implements store.ServerLists.
func (f Folder) DeleteServerList(_ context.Context, key, principal string) error {
	if err := os.Remove(f.file(key, principal)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the list of a server: %w", err)
	}
	return nil
}

// ServerList implements store.ServerLists.
func (f Folder) ServerList(_ context.Context, key, principal string) (store.ServerList, bool, error) {
	fail := func(err error) (store.ServerList, bool, error) {
		return store.ServerList{}, false, fmt.Errorf("read the list of a server: %w", err)
	}
	file, err := os.Open(f.file(key, principal))
	if errors.Is(err, fs.ErrNotExist) {
		return store.ServerList{}, false, nil
	}
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxBytes))
	if err != nil {
		return fail(err)
	}
	first, data, _ := bytes.Cut(text, []byte("\n"))
	var h head
	if json.Unmarshal(first, &h) != nil || h.Sum != sumOf(data) || h.Place != f.Place || h.Key != key || h.Principal != principal {
		return fail(fmt.Errorf("%w: the checksum of %s is wrong", store.ErrDamaged, file.Name()))
	}
	l := store.ServerList{Key: key, Principal: principal, Changed: h.Changed}
	if len(data) > 0 {
		l.Data = data
	}
	return l, true, nil
}
