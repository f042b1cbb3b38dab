package dirs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/tine-mcp/tine/internal/driver/parcel"
)

// Export writes the directories in a folder into a parcel, below a name. Owners
// and extended attributes are of the machine and stay there.
func Export(out *parcel.Writer, below string, set Set, folder string) error {
	e := &exporter{out: out, names: make(map[fileID]string)}
	for _, name := range set.there() {
		root, err := os.OpenRoot(folder)
		if err != nil {
			return err
		}
		err = e.entry(root, name, path.Join(below, name))
		root.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckExport refuses directories that Import would refuse, before anything of them
// is written.
func CheckExport(ctx context.Context, set Set, folder string) error {
	for _, name := range set.there() {
		err := filepath.WalkDir(filepath.Join(folder, name), func(at string, d fs.DirEntry, err error) error {
			if err = errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			rel, err := filepath.Rel(folder, at)
			if err != nil {
				return err
			}
			switch d.Type() {
			case 0, fs.ModeDir:
				return nil
			case fs.ModeSymlink:
				target, err := os.Readlink(at)
				if err != nil {
					return err
				}
				if err := checkTarget(filepath.ToSlash(rel), filepath.ToSlash(target)); err != nil {
					return fmt.Errorf("%s: %w, and no gateway would import it; remove the link and make the snapshot again", rel, err)
				}
				return nil
			}
			return fmt.Errorf("%s is neither a file, a directory nor a link; remove it and make the snapshot again", rel)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type exporter struct {
	out   *parcel.Writer
	names map[fileID]string // of files with several names, the first
}

// entry writes what has that name in a directory of the snapshot, and all below.
func (e *exporter) entry(dir *os.Root, name, as string) error {
	st, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: as, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	switch {
	case st.IsDir():
		h.Typeflag = tar.TypeDir
		if err := e.out.Entry(h); err != nil {
			return err
		}
		return e.below(dir, name, as)
	case st.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = dir.Readlink(name); err != nil {
			return err
		}
		return e.out.Entry(h)
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file, a directory nor a link", as)
	}
	if id, several := idOf(st); several {
		if first, ok := e.names[id]; ok {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return e.out.Entry(h)
		}
		e.names[id] = as
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := e.out.Entry(h); err != nil {
		return err
	}
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(e.out, io.LimitReader(f, st.Size()))
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
