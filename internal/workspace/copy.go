package workspace

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/layer"
)

// Limits bound what is copied at once. Zero fields bound nothing.
type Limits struct {
	Files int64
	Bytes int64
}

// ErrLimit is the error of a copy that has more than it may.
var ErrLimit = errors.New("the copy is too large")

// Copied is how much was copied.
type Copied struct {
	Files int64
	Bytes int64
	// LeftOut are the first of the names that a copy out has left out: FIFOs, sockets and
	// devices.
	LeftOut []string
}

// maxLeftOut bounds the names of LeftOut.
const maxLeftOut = 1000

// leave counts a name that is left out.
func (c *Copied) leave(l Limits, name string) error {
	if len(c.LeftOut) < maxLeftOut {
		c.LeftOut = append(c.LeftOut, name)
	}
	return c.add(l, 0)
}

// LeaveOut reports whether an entry of a folder's archive is a FIFO or a device, and notes
// it as left out.
func (c *Copied) LeaveOut(h *tar.Header, l Limits) (bool, error) {
	switch h.Typeflag {
	case tar.TypeFifo, tar.TypeChar, tar.TypeBlock:
		return true, c.leave(l, strings.Trim(strings.TrimPrefix(h.Name, "./"), "/"))
	}
	return false, nil
}

func (c *Copied) add(l Limits, size int64) error {
	c.Files++
	c.Bytes += size
	switch {
	case l.Files > 0 && c.Files > l.Files:
		return fmt.Errorf("%w: it has more than %d files and directories", ErrLimit, l.Files)
	case l.Bytes > 0 && c.Bytes > l.Bytes:
		return fmt.Errorf("%w: it has more than %d bytes", ErrLimit, l.Bytes)
	}
	return nil
}

// Unpack puts the entries of an archive below a directory, which is made where it is not
// there. Each file is there whole or not at all; what was put before an error stays. No
// entry is put outside, be it by its name or by a link on the way. Files that are there
// are replaced, directories are kept, and modes are those of the archive.
func Unpack(ctx context.Context, f FS, at string, r io.Reader, l Limits) (done Copied, err error) {
	if err := f.MkdirAll(orRoot(at)); err != nil {
		return done, err
	}
	in := tar.NewReader(r)
	var dirs []Info // to get their modes when nothing more is put into them
	for {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return done, fmt.Errorf("read the archive: %w", err)
		}
		if h, err = CheckEntry(h, l, &done); err != nil {
			return done, err
		}
		if h == nil {
			continue
		}
		name := path.Join(at, h.Name)
		if err := unpackOne(f, name, h, in); err != nil {
			return done, err
		}
		if h.Typeflag == tar.TypeDir {
			dirs = append(dirs, Info{Name: name, Mode: fs.FileMode(h.Mode).Perm()})
		}
	}
	for _, d := range slices.Backward(dirs) {
		if err := f.Chmod(d.Name, d.Mode); err != nil {
			return done, err
		}
	}
	return done, nil
}

// CheckEntry counts an entry of an archive and returns it with a plain name and without
// owners; nil for one that is only the root. Names that lead out, and what is neither a
// file nor a directory nor a link, are errors.
func CheckEntry(h *tar.Header, l Limits, done *Copied) (*tar.Header, error) {
	rel := strings.Trim(strings.TrimPrefix(h.Name, "./"), "/")
	if rel == "" || rel == "." {
		return nil, nil
	}
	if !filepath.IsLocal(filepath.FromSlash(rel)) {
		return nil, &fs.PathError{Op: "copy", Path: h.Name, Err: ErrEscape}
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
	default:
		return nil, &fs.PathError{Op: "copy", Path: h.Name, Err: special(h.FileInfo().Mode(), h.Typeflag)}
	}
	plain := &tar.Header{Typeflag: h.Typeflag, Name: rel, Linkname: h.Linkname, Mode: h.Mode & 0o777, ModTime: h.ModTime.Truncate(time.Second)}
	switch h.Typeflag {
	case tar.TypeReg:
		plain.Size, plain.Linkname = h.Size, ""
	case tar.TypeDir:
		plain.Linkname = ""
	}
	return plain, done.add(l, plain.Size)
}

func unpackOne(f FS, name string, h *tar.Header, content io.Reader) error {
	if h.Typeflag != tar.TypeDir {
		if err := f.MkdirAll(path.Dir(name)); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return f.MkdirAll(name)
	case tar.TypeReg:
		if err := f.Write(name, content, h.Size); err != nil {
			return err
		}
		return f.Chmod(name, fs.FileMode(h.Mode).Perm())
	case tar.TypeSymlink:
		if old, err := f.Lstat(name); err == nil && old.Mode&fs.ModeSymlink != 0 {
			if err := f.Remove(name); err != nil {
				return err
			}
		}
		return f.Symlink(h.Linkname, name)
	}
	return &fs.PathError{Op: "copy", Path: h.Name, Err: special(h.FileInfo().Mode(), h.Typeflag)}
}

// special is the error of what is neither a file nor a directory nor a link. Typeflag is
// that of a tar; 0 for what is in no tar.
func special(mode fs.FileMode, typeflag byte) error {
	kind := "of type " + mode.Type().String()
	switch {
	case typeflag == tar.TypeLink:
		kind = "a hard link"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a FIFO"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	case typeflag != 0:
		kind = fmt.Sprintf("of type %q", typeflag)
	}
	return fmt.Errorf("it is %s, and neither a file nor a directory nor a link", kind)
}

// Pack writes what is at a name as an archive: a file or a link under its last element, or
// after a RootEntry what is below a directory. Links are kept as links. FIFOs, sockets and
// devices below a directory are left out.
func Pack(ctx context.Context, f FS, at string, w io.Writer, l Limits) (done Copied, err error) {
	at = orRoot(at)
	info, err := f.Stat(at)
	if err != nil {
		return done, err
	}
	out := tar.NewWriter(w)
	one := func(name, as string, info Info) error {
		if err := plain(name, info); err != nil {
			return err
		}
		if err := done.add(l, packSize(info)); err != nil {
			return err
		}
		return writeEntry(f, name, info, out, &tar.Header{Name: as, ModTime: info.Modified.Truncate(time.Second)})
	}
	if !info.Mode.IsDir() {
		if err := one(at, path.Base(at), info); err != nil {
			return done, err
		}
		return done, out.Close()
	}
	if err := out.WriteHeader(RootEntry(info.Mode)); err != nil {
		return done, err
	}
	dir := at
	if dir == "." {
		dir = ""
	}
	err = walkDir(ctx, f, dir, func(name string, info Info) error {
		as := strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
		if plain(name, info) != nil {
			return done.leave(l, as)
		}
		return one(name, as, info)
	})
	if err != nil {
		return done, err
	}
	return done, out.Close()
}

// RootEntry is the first entry of an archive of a directory.
func RootEntry(mode fs.FileMode) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: int64(mode.Perm())}
}

func packSize(info Info) int64 {
	if info.Mode.IsRegular() {
		return info.Size
	}
	return 0
}

func orRoot(name string) string {
	if name = strings.Trim(name, "/"); name == "" {
		return "."
	}
	return name
}

// List lists what is at a name: a directory's entries with names from the root, or the
// file itself. With all, what is below its directories, too.
func List(ctx context.Context, f FS, at string, all bool, each func(name string, info Info) error) error {
	at = orRoot(at)
	info, err := f.Stat(at)
	if err != nil {
		return err
	}
	if !info.Mode.IsDir() {
		return each(at, info)
	}
	dir := at
	if dir == "." {
		dir = ""
	}
	if all {
		return walkDir(ctx, f, dir, each)
	}
	list, err := f.ReadDir(at)
	if err != nil {
		return err
	}
	for _, info := range list {
		if err := each(join(dir, info.Name), info); err != nil {
			return err
		}
	}
	return nil
}

// View shows a frozen workspace of either kind, for as long as use takes.
func (s *Store) View(f Frozen, use func(FS) error) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.Kind == KindFolder {
		from, err := openFolder(filepath.Join(f.Dir, filesName))
		if err != nil {
			return err
		}
		defer from.Close()
		return use(from)
	}
	return s.withTree(f.Layer, func(t *treeFS) error { return use(t) })
}

// ViewEmpty shows a workspace in which there is nothing.
func (s *Store) ViewEmpty(use func(FS) error) error {
	return s.withTree(layer.Ref{}, func(t *treeFS) error { return use(t) })
}

// What can have become of a name.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Diff tells what is another in b than in a, by name: contents, modes, where links lead.
// Times alone are no difference.
func Diff(ctx context.Context, a, b FS, each func(change, name string, info Info) error) error {
	was, err := all(ctx, a)
	if err != nil {
		return err
	}
	err = walkDir(ctx, b, "", func(name string, info Info) error {
		old, there := was[name]
		delete(was, name)
		if !there {
			return each(Added, name, info)
		}
		same, err := equal(ctx, a, b, name, old, info)
		if err != nil || same {
			return err
		}
		return each(Changed, name, info)
	})
	if err != nil {
		return err
	}
	var gone []string
	for name := range was {
		gone = append(gone, name)
	}
	slices.Sort(gone)
	for _, name := range gone {
		if err := each(Removed, name, was[name]); err != nil {
			return err
		}
	}
	return nil
}

func all(ctx context.Context, f FS) (map[string]Info, error) {
	found := make(map[string]Info)
	return found, walkDir(ctx, f, "", func(name string, info Info) error {
		found[name] = info
		return nil
	})
}

func equal(ctx context.Context, a, b FS, name string, was, is Info) (bool, error) {
	if was.Mode.Type() != is.Mode.Type() || was.Mode.Perm() != is.Mode.Perm() || was.Target != is.Target {
		return false, nil
	}
	if !is.Mode.IsRegular() {
		return true, nil
	}
	if was.Size != is.Size {
		return false, nil
	}
	x, err := a.Open(name)
	if err != nil {
		return false, err
	}
	defer x.Close()
	y, err := b.Open(name)
	if err != nil {
		return false, err
	}
	defer y.Close()
	if one, ok := x.(*treeFile); ok {
		if other, ok := y.(*treeFile); ok && slices.Equal(one.parts, other.parts) {
			return true, nil
		}
	}
	return sameContent(ctx, contentOf(x, was.Size), contentOf(y, is.Size))
}

func sameContent(ctx context.Context, a, b io.Reader) (bool, error) {
	x, y := bufio.NewReaderSize(a, 64<<10), bufio.NewReaderSize(b, 64<<10)
	p, q := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(x, p)
		m, other := io.ReadFull(y, q)
		if !bytes.Equal(p[:n], q[:m]) {
			return false, nil
		}
		over := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
		switch {
		case over(err) && over(other):
			return true, nil
		case err != nil && !over(err):
			return false, err
		case other != nil && !over(other):
			return false, other
		case over(err) || over(other):
			return false, nil
		}
	}
}
