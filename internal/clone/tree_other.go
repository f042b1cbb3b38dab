//go:build !linux && !darwin

package clone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"
)

// copier copies one thing after another: here is no way to share blocks, and
// links of files are not known.
type copier struct {
	ctx context.Context
	o   Options
	p   *progress
	buf []byte
}

func copyTree(ctx context.Context, dst, src string, o Options, p *progress) error {
	from, st, err := openTree(src)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenRoot(dst)
	if err != nil {
		return err
	}
	defer to.Close()
	made, err := to.Stat(".")
	if err != nil {
		return err
	}
	c := &copier{ctx: ctx, o: o, p: p, buf: make([]byte, 1<<20)}
	if err := c.dir(to, from, ".", made); err != nil {
		return err
	}
	return set(to, ".", st)
}

// openTree opens the root of a tree, which is not a link.
func openTree(src string) (*os.Root, fs.FileInfo, error) {
	st, err := os.Lstat(src)
	if err != nil {
		return nil, nil, err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		return nil, nil, errors.New("it is a symbolic link; name the directory that it leads to")
	}
	root, err := os.OpenRoot(src)
	return root, st, err
}

func (c *copier) dir(to, from *os.Root, at string, copyRoot fs.FileInfo) error {
	names, err := list(from)
	if err != nil {
		return &fs.PathError{Op: "read the directory", Path: at, Err: err}
	}
	for _, name := range names {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		err := c.entry(to, from, name, path.Join(at, name), copyRoot)
		if c.o.Vanishing && errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errGone is the error of an entry that is gone when its turn comes.
var errGone = errors.New("it was removed meanwhile")

func gone(at string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", at, errGone)
	}
	return fmt.Errorf("%s: %w", at, err)
}

func (c *copier) entry(to, from *os.Root, name, at string, copyRoot fs.FileInfo) error {
	st, err := from.Lstat(name)
	if err != nil {
		return gone(at, err)
	}
	switch {
	case st.Mode().IsRegular():
		if err := c.file(to, from, name, at); err != nil {
			return err
		}
		c.p.file()
	case st.IsDir():
		if os.SameFile(st, copyRoot) {
			return fmt.Errorf("%s is the copy itself; a tree can't be copied into itself", at)
		}
		sub, err := from.OpenRoot(name)
		if err != nil {
			return gone(at, err)
		}
		defer sub.Close()
		if err := to.Mkdir(name, 0o700); err != nil {
			return err
		}
		made, err := to.OpenRoot(name)
		if err != nil {
			return err
		}
		defer made.Close()
		if err := c.dir(made, sub, at, copyRoot); err != nil {
			return err
		}
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := from.Readlink(name)
		if err != nil {
			return gone(at, err)
		}
		c.p.file()
		return to.Symlink(target, name)
	case st.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0:
		return nil
	default:
		return fmt.Errorf("%s is a device, which can't be copied; remove it or keep it elsewhere", at)
	}
	return set(to, name, st)
}

func (c *copier) file(to, from *os.Root, name, at string) (err error) {
	r, err := from.Open(name)
	if err != nil {
		return gone(at, err)
	}
	defer r.Close()
	w, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := w.Close(); err == nil {
			err = closeErr
		}
	}()
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(c.buf)
		if n > 0 {
			if _, err := w.Write(c.buf[:n]); err != nil {
				return err
			}
			c.p.bytes(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
}

func set(to *os.Root, name string, st fs.FileInfo) error {
	if err := to.Chtimes(name, time.Time{}, st.ModTime()); err != nil {
		return err
	}
	return to.Chmod(name, st.Mode().Perm())
}

func list(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// Size counts the bytes and files of a tree. What vanishes meanwhile does not
// count.
func Size(src string) (bytes, files int64, err error) {
	root, _, err := openTree(src)
	if err != nil {
		return 0, 0, fmt.Errorf("measure %s: %w", src, err)
	}
	defer root.Close()
	if err := measure(root, ".", &bytes, &files); err != nil {
		return 0, 0, fmt.Errorf("measure %s: %w", src, err)
	}
	return bytes, files, nil
}

func measure(root *os.Root, at string, bytes, files *int64) error {
	names, err := list(root)
	if err != nil {
		return &fs.PathError{Op: "read", Path: at, Err: err}
	}
	for _, name := range names {
		st, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("%s: %w", path.Join(at, name), err)
		case st.IsDir():
			sub, err := root.OpenRoot(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", path.Join(at, name), err)
			}
			err = measure(sub, path.Join(at, name), bytes, files)
			sub.Close()
			if err != nil {
				return err
			}
		case st.Mode().IsRegular():
			*bytes += st.Size()
			*files++
		case st.Mode()&fs.ModeSymlink != 0:
			*files++
		}
	}
	return nil
}

// renameNew renames where nothing is in the way.
func renameNew(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	}
	return os.Rename(from, to)
}
