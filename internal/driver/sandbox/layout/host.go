package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Bounds of what is followed and read.
const (
	maxPath    = 4096
	maxLinks   = 40
	maxEntries = 2048 // of a directory that is split
)

// host is a filesystem whose root is a directory; the zero value is the machine's
// own. Links are followed by us, one name after the other, so that an absolute
// one stays in it.
type host struct {
	root string
	// moves are folders that have another path here, by that path. Only what is in
	// them is found there, not the folders above.
	moves map[string]string
}

// source is where a path is outside.
func (h host) source(p string) string {
	for seen, dir := range h.moves {
		if within(seen, p) {
			return below(dir, seen, p)
		}
	}
	return p
}

// moved reports whether a path is in a folder that has another path here.
func (h host) moved(p string) bool { return h.source(p) != p }

// enter is where to begin to follow a path, and the names that are left.
func (h host) enter(p string) (cur string, rest []string) {
	for seen := range h.moves {
		if within(seen, p) {
			return seen, names(strings.TrimPrefix(p, seen))
		}
	}
	return "/", names(p)
}

func (h host) at(p string) string {
	p = h.source(p)
	if h.root == "" {
		return p
	}
	return filepath.Join(h.root, filepath.FromSlash(p))
}

func (h host) lstat(p string) (fs.FileInfo, error) { return os.Lstat(h.at(p)) }

func (h host) readlink(p string) (string, error) {
	text, err := os.Readlink(h.at(p))
	return filepath.ToSlash(text), err
}

// A link is a symbolic link on the way to something. Its own place is real.
type link struct{ at, text string }

// real follows all links of a path, and returns them too. When something is not
// there, it returns how far it came.
func (h host) real(p string) (string, []link, error) {
	cur, _, links, err := h.follow(p)
	return cur, links, err
}

// follow is real, and returns the names that it did not come to.
func (h host) follow(p string) (cur string, rest []string, links []link, err error) {
	cur, rest = h.enter(p)
	for len(rest) > 0 {
		name := rest[0]
		if name == ".." {
			cur, rest = path.Dir(cur), rest[1:]
			continue
		}
		next := path.Join(cur, name)
		if len(next) > maxPath {
			return cur, rest, links, fmt.Errorf("%.40q... is longer than %d bytes", next, maxPath)
		}
		info, err := h.lstat(next)
		if err != nil {
			return cur, rest, links, err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if len(links) == maxLinks {
				return cur, rest, links, fmt.Errorf("%s leads through more than %d links", p, maxLinks)
			}
			text, err := h.readlink(next)
			if err != nil {
				return cur, rest, links, err
			}
			links = append(links, link{next, text})
			more := names(text)
			if path.IsAbs(text) {
				cur, more = h.enter(text)
			}
			rest = slices.Concat(more, rest[1:])
		case !info.IsDir() && len(rest) > 1:
			return cur, rest, links, &fs.PathError{Op: "look at", Path: next, Err: syscall.ENOTDIR}
		default:
			cur, rest = next, rest[1:]
		}
	}
	return cur, nil, links, nil
}

// names are the names of a path, as they are: what .. means is known only when
// the links before it are followed.
func names(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(s string) bool { return s == "" || s == "." })
}

// stat says what is at a path, all links followed.
func (h host) stat(p string) (string, fs.FileInfo, error) {
	real, _, err := h.real(p)
	if err != nil {
		return "", nil, err
	}
	info, err := h.lstat(real)
	return real, info, err
}

func (h host) isFile(p string) bool {
	_, info, err := h.stat(p)
	return err == nil && info.Mode().IsRegular()
}

func (h host) isDir(p string) bool {
	_, info, err := h.stat(p)
	return err == nil && info.IsDir()
}

// readDir lists a directory, sorted, and refuses more than max entries.
func (h host) readDir(p string, max int) ([]fs.DirEntry, error) {
	f, err := os.Open(h.at(p))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(max + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(list) > max {
		return nil, errMany
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

var errMany = errors.New("it has too many entries")

// head reads the beginning of a regular file.
func (h host) head(p string, max int64) ([]byte, error) {
	real, info, err := h.stat(p)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", p)
	}
	f, err := os.Open(h.at(real))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	_, err = io.Copy(&b, io.LimitReader(f, max))
	return b.Bytes(), err
}

// within reports whether a path is a directory or below it.
func within(dir, p string) bool {
	return p == dir || dir == "/" || len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// below is where p, which is within from, is when from is at to.
func below(to, from, p string) string {
	return path.Join(to, strings.TrimPrefix(p, strings.TrimSuffix(from, "/")))
}

// readAll reads what is not longer than max.
func readAll(r io.Reader, max int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(b)) > max {
		err = fmt.Errorf("it is longer than %d bytes", max)
	}
	return b, err
}
