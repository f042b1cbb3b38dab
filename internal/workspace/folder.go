package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// What new files and directories are made with.
const (
	fileMode = 0o644
	dirMode  = 0o755
)

// Folder is the FS of a directory of the host. Its handle on the directory is
// freed when the FS is no longer used.
//
// Every step is one element below a handle that os.Root guards, so that a program
// that swaps a directory for a link meanwhile changes which file inside is meant
// and nothing else. Which names are the same is the host's matter: where its
// filesystem folds case, "A" is "a".
func Folder(dir string) (FS, error) { return openFolder(dir) }

type folder struct {
	root  *os.Root
	name  string
	names []string
}

func openFolder(dir string) (*folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, pathError("open", dir, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, pathError("open", abs, err)
	}
	f := &folder{root: root, name: abs, names: []string{filepath.ToSlash(abs)}}
	// A program may have made links by the path it was given or by the real one.
	if actual, err := filepath.EvalSymlinks(abs); err == nil && actual != abs {
		f.names = append(f.names, filepath.ToSlash(actual))
	}
	return f, nil
}

// Close frees the handle.
func (f *folder) Close() error { return f.root.Close() }

func (f *folder) Root() string { return f.name }

func (f *folder) roots() []string        { return f.names }
func (f *folder) top() (*os.Root, error) { return f.root.OpenRoot(".") }
func (f *folder) leave(d *os.Root)       { d.Close() }
func (f *folder) find(name string, follow bool) (spot[*os.Root], error) {
	return resolve(ground[*os.Root](f), name, follow)
}

func (f *folder) enter(d *os.Root, element string) (*os.Root, error) {
	next, err := d.OpenRoot(element)
	if err != nil {
		return d, err
	}
	d.Close()
	return next, nil
}

func (f *folder) look(d *os.Root, element string) (Info, error) {
	for try := 0; ; try++ {
		st, err := d.Lstat(element)
		if err != nil {
			return Info{}, err
		}
		info := hostInfo(element, st)
		if info.Mode&fs.ModeSymlink == 0 {
			return info, nil
		}
		target, err := d.Readlink(element)
		if errors.Is(err, syscall.EINVAL) && try < maxLinks {
			continue // it is no link any more
		}
		info.Target = filepath.ToSlash(target)
		return info, err
	}
}

func hostInfo(name string, st fs.FileInfo) Info {
	created, accessed := hostTimes(st)
	info := Info{Name: name, Mode: st.Mode(), Size: st.Size(), Modified: st.ModTime(), Created: created, Accessed: accessed}
	if st.IsDir() {
		info.Size = 0 // what a directory weighs is the filesystem's secret
	}
	return info
}

func (f *folder) Stat(name string) (Info, error)  { return f.stat("stat", name, true) }
func (f *folder) Lstat(name string) (Info, error) { return f.stat("lstat", name, false) }

func (f *folder) stat(op, name string, follow bool) (Info, error) {
	s, err := f.find(name, follow)
	if err != nil {
		return Info{}, pathError(op, name, err)
	}
	defer f.leave(s.dir)
	if !s.found {
		return Info{}, pathError(op, name, fs.ErrNotExist)
	}
	if t, ok := born(s.dir, s.base); ok {
		s.info.Created = t
	}
	s.info.Name = lastElement(name)
	return s.info, nil
}

func (f *folder) ReadDir(name string) ([]Info, error) {
	list, err := f.readDir(name)
	return list, pathError("readdir", name, err)
}

func (f *folder) readDir(name string) ([]Info, error) {
	s, err := f.find(name, true)
	if err != nil {
		return nil, err
	}
	defer f.leave(s.dir)
	switch {
	case !s.found:
		return nil, fs.ErrNotExist
	case !s.info.Mode.IsDir():
		return nil, syscall.ENOTDIR
	}
	dir, err := s.dir.OpenRoot(s.base)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := listNames(dir)
	if err != nil {
		return nil, err
	}
	list := make([]Info, 0, len(names))
	for _, n := range names {
		info, err := f.look(dir, n)
		if missing(err) {
			continue // it went meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

// listNames returns what is in a directory, by name, without unfinished writes.
func listNames(dir *os.Root) ([]string, error) {
	h, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer h.Close()
	names, err := h.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, isPartial)
	slices.SortFunc(names, strings.Compare)
	return names, nil
}

func (f *folder) Open(name string) (File, error) {
	file, err := f.open(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return file, nil
}

func (f *folder) open(name string) (*hostFile, error) {
	s, err := f.find(name, true)
	if err != nil {
		return nil, err
	}
	defer f.leave(s.dir)
	if !s.found {
		return nil, fs.ErrNotExist
	}
	if err := readable(s.info.Mode); err != nil {
		return nil, err
	}
	// It may have become a pipe since, and opening one waits for a writer.
	h, err := s.dir.OpenFile(s.base, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, err
	}
	st, err := h.Stat()
	if err == nil {
		err = readable(st.Mode())
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return &hostFile{File: h, info: hostInfo(lastElement(name), st)}, nil
}

// readable tells whether something with this mode can be read as a file, and
// replaced as one.
func readable(mode fs.FileMode) error {
	switch {
	case mode.IsDir():
		return syscall.EISDIR
	case !mode.IsRegular():
		return fs.ErrInvalid
	}
	return nil
}

type hostFile struct {
	*os.File
	info Info
}

func (f *hostFile) Info() Info { return f.info }

var (
	_ File      = (*hostFile)(nil)
	_ FS        = (*folder)(nil)
	_ io.Closer = (*folder)(nil)
)
