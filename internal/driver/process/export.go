package process

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// An export is a tar stream: a head that says what it is, the directories below
// state/, and an end without which it was cut off. Owners and extended
// attributes are of the machine and stay there.
const (
	exportHead    = "tine-process.json"
	exportEnd     = "tine-process.end"
	exportState   = "state"
	exportFormat  = "tine process state"
	exportVersion = 1
	exportText    = 64 << 10 // bytes of the head and the end
)

type exportHeader struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	frozen
}

type exportTail struct {
	Entries int `json:"entries"`
}

// Export implements driver.Keeper.
func (d *Driver) Export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	if err := export(ctx, s, w); err != nil {
		return fmt.Errorf("server %q: export its snapshot: %w", s.Server, err)
	}
	return nil
}

func export(ctx context.Context, s driver.Snapshot, w io.Writer) error {
	f, err := thaw(s)
	if err != nil {
		return err
	}
	e := &exporter{ctx: ctx, tar: tar.NewWriter(w), names: make(map[fileID]string)}
	if err := e.text(exportHead, exportHeader{exportFormat, exportVersion, f}); err != nil {
		return err
	}
	for _, name := range sortedKeys(f.Dirs) {
		if !f.Dirs[name] {
			continue
		}
		root, err := os.OpenRoot(s.Dir)
		if err != nil {
			return err
		}
		err = e.entry(root, name, path.Join(exportState, name))
		root.Close()
		if err != nil {
			return err
		}
	}
	if err := e.text(exportEnd, exportTail{e.entries}); err != nil {
		return err
	}
	return e.tar.Close()
}

func sortedKeys(m map[string]bool) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

type exporter struct {
	ctx     context.Context
	tar     *tar.Writer
	names   map[fileID]string // of files with several names, the first
	entries int
}

func (e *exporter) text(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := e.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(b)), Mode: 0o600, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err = e.tar.Write(b)
	return err
}

// entry writes what has that name in a directory of the snapshot, and all below.
func (e *exporter) entry(dir *os.Root, name, as string) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	st, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: as, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	e.entries++
	switch {
	case st.IsDir():
		h.Typeflag = tar.TypeDir
		if err := e.tar.WriteHeader(h); err != nil {
			return err
		}
		return e.below(dir, name, as)
	case st.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = dir.Readlink(name); err != nil {
			return err
		}
		return e.tar.WriteHeader(h)
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file, a directory nor a link", as)
	}
	if id, several := idOf(st); several {
		if first, ok := e.names[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return e.tar.WriteHeader(h)
		}
		e.names[id] = as
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := e.tar.WriteHeader(h); err != nil {
		return err
	}
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(e.tar, bounded{e.ctx, io.LimitReader(f, st.Size())})
	if err == nil && n != st.Size() {
		err = fmt.Errorf("%s changed meanwhile", as)
	}
	return err
}

func (e *exporter) below(dir *os.Root, name, as string) error {
	sub, err := dir.OpenRoot(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	d, err := sub.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := e.entry(sub, name, path.Join(as, name)); err != nil {
			return err
		}
	}
	return nil
}

// bounded is a reader that fails when its context has ended.
type bounded struct {
	ctx context.Context
	r   io.Reader
}

func (b bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}
