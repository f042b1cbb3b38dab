package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// maxFollowed is how many links may lead to one place.
const maxFollowed = 40

// tree is the root that an image is unpacked to. Paths are relative to it, with
// slashes. Links on the way to something are followed here, an absolute one from
// the root; what is done then is done to a path without links, through an os.Root,
// which would refuse one that leads out.
type tree struct {
	root *os.Root
	dirs map[string]bool // that are known to be directories
	mine map[string]bool // what this layer brought, and what is above it

	near string // where the last file was written
	sub  *os.Root
}

func openTree(dir string) (*tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &tree{root: root, dirs: map[string]bool{}, mine: map[string]bool{}}, nil
}

func (t *tree) close() error {
	t.forget()
	return t.root.Close()
}

// begin begins a layer.
func (t *tree) begin() { clear(t.mine) }

// forget is for when a directory was removed.
func (t *tree) forget() {
	clear(t.dirs)
	if t.sub != nil {
		t.sub.Close()
		t.sub = nil
	}
}

// in opens a directory; files of one come one after the other.
func (t *tree) in(dir string) (*os.Root, error) {
	if dir == "" {
		return t.root, nil
	}
	if t.sub != nil && t.near == dir {
		return t.sub, nil
	}
	sub, err := t.root.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if t.sub != nil {
		t.sub.Close()
	}
	t.near, t.sub = dir, sub
	return sub, nil
}

// dir is where a directory really is, in the root. It makes what is missing.
func (t *tree) dir(name string, create bool) (string, error) {
	if name == "" || t.dirs[name] {
		return name, nil
	}
	cur, rest, followed := "", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			cur = strings.TrimPrefix(path.Dir("/"+cur), "/")
			continue
		}
		next := path.Join(cur, part)
		if t.dirs[next] {
			cur = next
			continue
		}
		info, err := t.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && create:
			if err := t.mkdir(cur, part, 0o755); err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink != 0:
			if followed++; followed > maxFollowed {
				return "", fmt.Errorf("%w: it lies behind more than %d links", ErrUnsafe, maxFollowed)
			}
			text, err := t.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if path.IsAbs(text) {
				cur = ""
			}
			rest = slices.Concat(strings.Split(text, "/"), rest)
			continue
		case !info.IsDir():
			return "", fmt.Errorf("%w: %.200q is not a directory, and it lies in that", ErrFormat, next)
		}
		t.dirs[next] = true
		cur = next
	}
	return cur, nil
}

// brought marks what a layer brought.
func (t *tree) brought(name string) {
	for ; name != "." && name != "" && !t.mine[name]; name = path.Dir(name) {
		t.mine[name] = true
	}
}

// clear makes a place free, unless a directory is there and one shall be.
func (t *tree) clear(sub *os.Root, base string, folder bool) (there bool, err error) {
	info, err := sub.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.IsDir():
		return false, sub.Remove(base)
	case folder:
		return true, nil
	}
	// It may be the one that is open.
	if err := sub.RemoveAll(base); err != nil {
		return false, err
	}
	clear(t.dirs)
	return false, nil
}

func (t *tree) mkdir(dir, base string, mode fs.FileMode) error {
	sub, err := t.in(dir)
	if err != nil {
		return err
	}
	there, err := t.clear(sub, base, true)
	if err == nil && !there {
		err = sub.Mkdir(base, 0o700)
	}
	if err == nil {
		err = sub.Chmod(base, mode)
	}
	t.brought(path.Join(dir, base))
	return err
}

func (t *tree) symlink(dir, base, to string) error {
	sub, err := t.in(dir)
	if err != nil {
		return err
	}
	if _, err := t.clear(sub, base, false); err != nil {
		return err
	}
	t.brought(path.Join(dir, base))
	return sub.Symlink(to, base)
}

func (t *tree) file(dir, base string, r io.Reader, mode fs.FileMode, at time.Time) error {
	sub, err := t.in(dir)
	if err != nil {
		return err
	}
	if _, err := t.clear(sub, base, false); err != nil {
		return err
	}
	t.brought(path.Join(dir, base))
	f, err := sub.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// Compiled files of Python say which time their source has.
	if at.Unix() > 0 {
		return sub.Chtimes(base, at, at)
	}
	return nil
}

// link makes a file another name of old, whose path has no links.
func (t *tree) link(dir, base, old string) error {
	name := path.Join(dir, base)
	info, err := t.root.Lstat(old)
	if err != nil || name == old {
		return err
	}
	text := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if text, err = t.root.Readlink(old); err != nil {
			return err
		}
		return t.symlink(dir, base, text)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is a hard link to a directory", ErrFormat)
	}
	sub, err := t.in(dir)
	if err != nil {
		return err
	}
	if _, err := t.clear(sub, base, false); err != nil {
		return err
	}
	t.brought(name)
	return t.root.Link(old, name)
}

// remove removes what the layers below have at a place.
func (t *tree) remove(dir, base string) error {
	sub, err := t.in(dir)
	if err != nil {
		return err
	}
	err = sub.RemoveAll(base)
	t.forget()
	return err
}

// empty removes what the layers below have in a directory.
func (t *tree) empty(dir string) error {
	defer t.forget()
	at := dir
	if at == "" {
		at = "."
	}
	f, err := t.root.Open(at)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case !t.mine[name]:
			err = t.root.RemoveAll(name)
		case e.IsDir():
			err = t.empty(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
