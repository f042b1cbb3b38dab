package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/parcel"
)

// Import implements driver.Keeper. The stream is not trusted. It is kept in dir as
// archives with plain entries, a bounded number of bounded size; an engine unpacks them
// where they are used, inside a volume or an image.
func (d *Driver) Import(ctx context.Context, server, dir string, r io.Reader) (s driver.Snapshot, err error) {
	err = folder.Fill(dir, func() (err error) {
		s, err = d.importInto(ctx, server, dir, r)
		return err
	})
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: import a snapshot: %w", server, err)
	}
	return s, nil
}

func (d *Driver) importInto(ctx context.Context, server, dir string, r io.Reader) (_ driver.Snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return driver.Snapshot{}, err
	}
	i := &importer{dir: dir, seen: make(map[string]bool)}
	if i.in, err = exportForm.Read(ctx, r, d.opts.ImportBytes, d.opts.ImportFiles, &i.head); err != nil {
		return driver.Snapshot{}, err
	}
	defer i.close()
	if err := i.run(); err != nil {
		return driver.Snapshot{}, err
	}
	h := holding{Kind: recordState, Files: true, Root: i.head.Root}
	for n, p := range i.head.Paths {
		h.Volumes = append(h.Volumes, piece{Path: p, Fresh: i.head.Fresh[n]})
	}
	if err := h.write(dir); err != nil {
		return driver.Snapshot{}, err
	}
	s := snapshot(server, dir, i.in.Size)
	s.Runs = i.head.Root
	return s, nil
}

type importer struct {
	dir  string
	in   *parcel.Reader
	head exportHeader
	open string // the folder whose archive is being written
	f    *os.File
	out  *tar.Writer
	made map[string]byte // names of the folder that is open, and their types
	seen map[string]bool // folders that were written
}

func (i *importer) run() error {
	if err := i.head.check(); err != nil {
		return err
	}
	if err := i.in.Each(i.entry); err != nil {
		return err
	}
	for top := range i.head.folders() {
		if !i.seen[top] {
			return fmt.Errorf("%s is missing", top)
		}
	}
	return i.close()
}

func (h exportHeader) check() error {
	if len(h.Paths) > exportPieces || len(h.Fresh) != len(h.Paths) {
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
	top, name, ok := strings.Cut(strings.TrimSuffix(h.Name, "/"), "/")
	if !ok && h.Typeflag != tar.TypeDir || !i.head.folders()[top] {
		return errors.New("it has no place in a state")
	}
	if err := i.turnTo(top); err != nil {
		return err
	}
	if err := i.checkName(name, h.Typeflag); err != nil {
		return err
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
		if !ok || !strings.HasPrefix(h.Linkname, top+"/") || i.made[first] != tar.TypeReg {
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
	return i.in.Copy(i.out)
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
func (i *importer) turnTo(top string) error {
	if i.open == top {
		return nil
	}
	if i.seen[top] {
		return errors.New("it comes too late")
	}
	if err := i.close(); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(i.dir, top+".tar"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	i.open, i.f, i.out, i.made = top, f, tar.NewWriter(f), make(map[string]byte)
	i.seen[top] = true
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
