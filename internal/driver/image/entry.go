package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// How a layer says that something of the layers below is gone.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	reserved = ".wh..wh."
)

// inside is the name of an entry as a path in the root; empty for the root itself.
func (u *unpacking) inside(name string) (string, error) {
	if len(name) > u.limits.Path {
		return "", fmt.Errorf("%w: its path is longer than %d bytes; use another image", ErrLimit, u.limits.Path)
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", fmt.Errorf("%w: it leads out of the image; get the image anew from its maker", ErrUnsafe)
		default:
			if strings.ContainsRune(part, 0) {
				return "", fmt.Errorf("%w: it has a name that no file can have", ErrFormat)
			}
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/"), nil
}

// entry writes one entry.
func (u *unpacking) entry(h *tar.Header, r io.Reader, whiteouts bool) error {
	name, err := u.inside(h.Name)
	if err != nil {
		return err
	}
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if whiteouts && strings.HasPrefix(base, whiteout) {
		return u.whiteout(dir, base)
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	case tar.TypeXGlobalHeader:
		return nil
	default:
		u.skipped++
		return nil
	}
	if name == "" {
		return nil // the root has a mode of its own
	}
	if dir, err = u.tree.dir(dir, true); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.tree.mkdir(dir, base, dirMode(h))
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > u.limits.Path {
			return fmt.Errorf("%w: it is a link that leads nowhere", ErrFormat)
		}
		return u.tree.symlink(dir, base, h.Linkname)
	case tar.TypeLink:
		return u.hardLink(dir, base, h.Linkname)
	}
	if u.written += h.Size; u.written > u.limits.Bytes {
		return u.limits.tooLarge()
	}
	return damagedIn(u.tree.file(dir, base, r, fileMode(h), h.ModTime))
}

// damagedIn says whose fault it is that a file was cut off.
func damagedIn(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged(err)
	}
	return err
}

// fileMode is what of a mode is kept. Every file is ours, and readable by all users
// inside; and no bit changes the user that runs it.
func fileMode(h *tar.Header) fs.FileMode {
	mode := fs.FileMode(h.Mode)&0o777 | 0o444
	if mode&0o111 != 0 {
		mode |= 0o111
	}
	return mode
}

func dirMode(h *tar.Header) fs.FileMode {
	mode := fs.FileMode(h.Mode)&0o777 | 0o755
	if h.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// hardLink makes a file another name of one that is there.
func (u *unpacking) hardLink(dir, base, to string) error {
	if u.links++; u.links > u.limits.Links {
		return fmt.Errorf("%w: it has more than %d hard links; use another image", ErrLimit, u.limits.Links)
	}
	old, err := u.inside(to)
	if err != nil {
		return err
	}
	oldDir, oldBase := path.Split(old)
	oldDir, err = u.tree.dir(strings.TrimSuffix(oldDir, "/"), false)
	if err == nil {
		err = u.tree.link(dir, base, path.Join(oldDir, oldBase))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it is a link to %.200q, which is not there; write it anew", ErrFormat, to)
	}
	return err
}

// whiteout removes what the layers below have.
func (u *unpacking) whiteout(dir, base string) error {
	dir, err := u.tree.dir(dir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if base == opaque {
		return u.tree.empty(dir)
	}
	if strings.HasPrefix(base, reserved) {
		return nil // how another storage kept its own things
	}
	gone := strings.TrimPrefix(base, whiteout)
	if gone == "" || gone == "." || gone == ".." {
		return fmt.Errorf("%w: it removes what is outside of the image; get the image anew from its maker", ErrUnsafe)
	}
	return u.tree.remove(dir, gone)
}
