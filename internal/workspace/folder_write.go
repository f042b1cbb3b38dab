package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// A file is written under a name of this kind beside its place and then renamed, so
// that a reader never sees half of it. One that a killed process left is not listed
// and goes with its directory.
const (
	partialPrefix = ".tine-partial-"
	partialDigits = 16
)

func partialName() string {
	var b [partialDigits / 2]byte
	rand.Read(b[:])
	return partialPrefix + hex.EncodeToString(b[:])
}

func isPartial(name string) bool {
	rest, ok := strings.CutPrefix(name, partialPrefix)
	if !ok || len(rest) != partialDigits {
		return false
	}
	_, err := hex.DecodeString(rest)
	return err == nil
}

func (f *folder) Write(name string, r io.Reader, size int64) error {
	s, err := f.find(name, true)
	if err != nil {
		return pathError("write", name, err)
	}
	defer f.leave(s.dir)
	if s.found {
		if err := readable(s.info.Mode); err != nil {
			return pathError("write", name, err)
		}
	}
	return pathError("write", name, f.put(s, r, size, func(partial string) error {
		return s.dir.Rename(partial, s.base)
	}))
}

func (f *folder) Create(name string, r io.Reader, size int64) error {
	s, err := f.find(name, false)
	if err != nil {
		return pathError("create", name, err)
	}
	defer f.leave(s.dir)
	if s.found {
		return pathError("create", name, fs.ErrExist)
	}
	return pathError("create", name, f.put(s, r, size, func(partial string) error {
		return f.renameNew(spot[*os.Root]{dir: s.dir, trail: s.trail, base: partial}, s)
	}))
}

// put writes a file beside a spot and has it moved to its place. It has the mode
// of the one it replaces, or a new one's, less what the host masks.
func (f *folder) put(s spot[*os.Root], r io.Reader, size int64, place func(partial string) error) (err error) {
	if size < 0 {
		return fs.ErrInvalid
	}
	partial := partialName()
	h, err := s.dir.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.dir.Remove(partial)
		}
	}()
	err = copyContent(h, r, size)
	if err == nil && s.found {
		err = h.Chmod(s.info.Mode.Perm())
	}
	if closed := h.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return place(partial)
}

// copyContent takes size bytes from r. A reader that has less is an error, so that a
// cut-off one does not become a short file.
func copyContent(w io.Writer, r io.Reader, size int64) error {
	n, err := io.CopyN(w, r, size)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("content ended after %d of %d bytes: %w", n, size, io.ErrUnexpectedEOF)
	}
	return err
}

// renameChecked moves what is at one spot to another that is free, where the host
// can't do both as one step: a file that another program puts there between the check
// and the move is lost.
func (f *folder) renameChecked(from, to spot[*os.Root]) error {
	switch _, err := to.dir.Lstat(to.base); {
	case err == nil:
		return fs.ErrExist
	case !missing(err):
		return err
	}
	return f.root.Rename(from.path(), to.path())
}

func (f *folder) Mkdir(name string) error {
	s, err := f.find(name, false)
	if err != nil {
		return pathError("mkdir", name, err)
	}
	defer f.leave(s.dir)
	if s.found {
		return pathError("mkdir", name, fs.ErrExist)
	}
	return pathError("mkdir", name, s.dir.Mkdir(s.base, dirMode))
}

func (f *folder) MkdirAll(name string) error {
	return pathError("mkdir", name, mkdirAll(ground[*os.Root](f), name, func(s spot[*os.Root]) error {
		err := s.dir.Mkdir(s.base, dirMode)
		if errors.Is(err, fs.ErrExist) {
			return nil // another caller made it first; the next step sees what it is
		}
		return err
	}))
}

func (f *folder) Rename(from, to string) error {
	a, err := f.find(from, false)
	if err != nil {
		return pathError("rename", from, err)
	}
	defer f.leave(a.dir)
	b, err := f.find(to, false)
	if err != nil {
		return pathError("rename", to, err)
	}
	defer f.leave(b.dir)
	if name, err := renamable(a, b, from, to); err != nil {
		return pathError("rename", name, err)
	}
	return pathError("rename", to, f.renameNew(a, b))
}

func (f *folder) Remove(name string) error {
	s, err := f.find(name, false)
	if err != nil {
		return pathError("remove", name, err)
	}
	defer f.leave(s.dir)
	switch {
	case s.isRoot():
		return pathError("remove", name, fs.ErrInvalid)
	case !s.found:
		return pathError("remove", name, fs.ErrNotExist)
	}
	err = s.dir.Remove(s.base)
	if err != nil && s.info.Mode.IsDir() {
		err = removeDir(s.dir, s.base, err)
	}
	return pathError("remove", name, err)
}

// removeDir removes a directory in which there is nothing but writes that a
// killed process did not end.
func removeDir(parent *os.Root, base string, failed error) error {
	dir, err := parent.OpenRoot(base)
	if err != nil {
		return failed
	}
	defer dir.Close()
	names, err := listNames(dir)
	if err != nil {
		return failed
	}
	if len(names) > 0 {
		return syscall.ENOTEMPTY
	}
	h, err := dir.Open(".")
	if err != nil {
		return failed
	}
	defer h.Close()
	rest, err := h.Readdirnames(-1)
	if err != nil {
		return failed
	}
	for _, n := range rest {
		if isPartial(n) {
			dir.Remove(n)
		}
	}
	return parent.Remove(base)
}

func (f *folder) RemoveAll(name string) error {
	s, err := f.find(name, false)
	if missing(err) {
		return nil
	}
	if err != nil {
		return pathError("remove", name, err)
	}
	defer f.leave(s.dir)
	if s.isRoot() {
		return pathError("remove", name, fs.ErrInvalid)
	}
	return pathError("remove", name, s.dir.RemoveAll(s.base))
}

func (f *folder) Chmod(name string, mode fs.FileMode) error {
	s, err := f.find(name, true)
	if err != nil {
		return pathError("chmod", name, err)
	}
	defer f.leave(s.dir)
	if !s.found {
		return pathError("chmod", name, fs.ErrNotExist)
	}
	return pathError("chmod", name, s.dir.Chmod(s.base, mode.Perm()))
}

func (f *folder) Symlink(target, name string) error {
	if err := checkTarget(target); err != nil {
		return pathError("symlink", name, err)
	}
	s, err := f.find(name, false)
	if err != nil {
		return pathError("symlink", name, err)
	}
	defer f.leave(s.dir)
	if s.found {
		return pathError("symlink", name, fs.ErrExist)
	}
	return pathError("symlink", name, s.dir.Symlink(target, s.base))
}
