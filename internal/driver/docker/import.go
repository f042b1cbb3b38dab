package docker

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

// Import implements driver.Keeper. The stream may come from anybody. It is kept
// in dir as archives with plain entries, a bounded number of bounded size; an
// engine unpacks them where they are used, inside a volume or an image.
func (d *Driver) Import(ctx context.Context, server, dir string, r io.Reader) (driver.Snapshot, error) {
	s, err := d.importInto(ctx, server, dir, r)
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: import a snapshot: %w", server, err)
	}
	return s, nil
}

func (d *Driver) importInto(ctx context.Context, server, dir string, r io.Reader) (_ driver.Snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return driver.Snapshot{}, err
	}
	if err := newFolder(dir); err != nil {
		return driver.Snapshot{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clone.Remove(dir))
		}
	}()
	in := bounded{ctx, r}
	i := &importer{dir: dir, tar: tar.NewReader(in), bytes: d.opts.ImportBytes, files: d.opts.ImportFiles}
	defer i.close()
	if err := i.run(); err != nil {
		return driver.Snapshot{}, err
	}
	if n, err := in.Read(make([]byte, 1)); n > 0 || err == nil {
		return driver.Snapshot{}, errors.New("something follows its end")
	}
	h := holding{Kind: recordState, Files: true, Root: i.head.Root}
	for n, p := range i.head.Paths {
		h.Volumes = append(h.Volumes, piece{Path: p, Fresh: i.head.Fresh[n]})
	}
	if err := h.write(dir); err != nil {
		return driver.Snapshot{}, err
	}
	return snapshot(server, dir, i.size), nil
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

type importer struct {
	dir   string
	tar   *tar.Reader
	bytes int64 // that may be there, at most
	files int

	head    exportHeader
	open    string // the folder whose archive is being written
	f       *os.File
	out     *tar.Writer
	made    map[string]byte // names of the folder that is open, and their types
	seen    map[string]bool // folders that were written
	entries int
	size    int64
}

func (i *importer) run() error {
	h, err := i.tar.Next()
	if err != nil || h.Name != exportHead {
		return errors.New("it is not a snapshot of a container's state")
	}
	if err := i.text(h, &i.head); err != nil {
		return err
	}
	if err := i.head.check(); err != nil {
		return err
	}
	i.seen = make(map[string]bool)
	for {
		h, err := i.tar.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("it was cut off: its end is missing")
		case err != nil:
			return fmt.Errorf("it can't be read: %w", err)
		case h.Name == exportEnd:
			return i.finish(h)
		}
		if err := i.entry(h); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

func (h exportHeader) check() error {
	switch {
	case h.Format != exportFormat:
		return errors.New("it is not a snapshot of a container's state")
	case h.Version != exportVersion:
		return fmt.Errorf("it is of version %d, and this Tine reads %d", h.Version, exportVersion)
	case len(h.Paths) > exportPieces || len(h.Fresh) != len(h.Paths):
		return errors.New("its head is not what it should be")
	}
	seen := make(map[string]bool)
	for _, p := range h.Paths {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || seen[p] || strings.ContainsAny(p, "\x00:") {
			return fmt.Errorf("a state can't be at %.200q", p)
		}
		seen[p] = true
	}
	return nil
}

// text reads a small JSON entry.
func (i *importer) text(h *tar.Header, v any) error {
	if h.Typeflag != tar.TypeReg || h.Size > exportText {
		return fmt.Errorf("entry %q is not what it should be", h.Name)
	}
	b, err := io.ReadAll(i.tar)
	if err != nil {
		return fmt.Errorf("it can't be read: %w", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("entry %q can't be read: %w", h.Name, err)
	}
	return nil
}

// folders are those that an export with this head has.
func (h exportHeader) folders() map[string]bool {
	all := make(map[string]bool)
	for n := range h.Paths {
		if !h.Fresh[n] {
			all[pieceName(n)] = true
		}
	}
	if h.Root && h.Image {
		all[exportRoot] = true
	}
	return all
}

// entry takes one file over. Its folder is one that the head has, its name leads
// nowhere else, and a hard link is to a file before it.
func (i *importer) entry(h *tar.Header) error {
	if i.entries++; i.entries > i.files {
		return fmt.Errorf("it has more than %d files, which is the limit", i.files)
	}
	folder, name, ok := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/")
	if !ok && h.Typeflag != tar.TypeDir || !i.head.folders()[folder] {
		return errors.New("it has no place in a state")
	}
	if err := i.turnTo(folder); err != nil {
		return err
	}
	if err := i.checkName(name, h.Typeflag); err != nil {
		return err
	}
	if h.Size < 0 || h.Size > i.bytes-i.size {
		return fmt.Errorf("it has more than %d bytes, which is the limit", i.bytes)
	}
	out := plainHeader(h, name)
	switch h.Typeflag {
	case tar.TypeDir:
		if name == "" {
			out.Name = "./"
		}
	case tar.TypeReg:
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > 4096 {
			return errors.New("it is a link to nothing")
		}
	case tar.TypeLink:
		_, first, ok := strings.Cut(h.Linkname, "/")
		if !ok || !strings.HasPrefix(h.Linkname, folder+"/") || i.made[first] != tar.TypeReg {
			return fmt.Errorf("it is a link to %.200q, which is no file before it", h.Linkname)
		}
		out.Linkname = first
	default:
		return fmt.Errorf("it is neither a file, a directory nor a link (type %q)", h.Typeflag)
	}
	i.made[name] = h.Typeflag
	if err := i.out.WriteHeader(out); err != nil {
		return err
	}
	n, err := io.Copy(i.out, i.tar)
	i.size += n
	return err
}

// checkName refuses what is there already or lies below something that is no
// directory.
func (i *importer) checkName(name string, of byte) error {
	bad := errors.New("it has no place in a state")
	if name == "" {
		if of != tar.TypeDir || i.made[""] != 0 {
			return bad
		}
		return nil
	}
	if len(name) > 4096 || path.Clean(name) != name || !filepath.IsLocal(name) || strings.Contains(name, "\x00") || i.made[name] != 0 {
		return bad
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if t := i.made[dir]; t != 0 && t != tar.TypeDir {
			return bad
		}
	}
	return nil
}

// turnTo opens the archive of a folder. All of one come together.
func (i *importer) turnTo(folder string) error {
	if i.open == folder {
		return nil
	}
	if i.seen[folder] {
		return errors.New("it comes too late")
	}
	if err := i.close(); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(i.dir, folder+".tar"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	i.open, i.f, i.out, i.made = folder, f, tar.NewWriter(f), make(map[string]byte)
	i.seen[folder] = true
	return nil
}

func (i *importer) close() error {
	if i.f == nil {
		return nil
	}
	err := errors.Join(i.out.Close(), i.f.Close())
	i.f, i.open = nil, ""
	return err
}

func (i *importer) finish(h *tar.Header) error {
	var tail exportTail
	if err := i.text(h, &tail); err != nil {
		return err
	}
	if tail.Entries != i.entries {
		return fmt.Errorf("it has %d entries and says %d", i.entries, tail.Entries)
	}
	for folder := range i.head.folders() {
		if !i.seen[folder] {
			return fmt.Errorf("%s is missing", folder)
		}
	}
	if _, err := i.tar.Next(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return i.close()
}
