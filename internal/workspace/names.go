package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"unicode/utf8"
)

// What a name may be, the same on every host.
const (
	maxName  = 255  // bytes of one element
	maxPath  = 4096 // bytes of a name, and of a link's target
	maxLinks = 40   // links on the way to one file
)

// errNotText is about a name that can't be kept in JSON.
var errNotText = fmt.Errorf("%w: the name is not UTF-8, or has a zero byte in it", fs.ErrInvalid)

// elements cuts a name into its elements. Slashes that say nothing and "." are
// left out, so that "a//b/." is "a/b"; ".." stays, since what it means depends
// on the links before it. Names are bytes: neither case nor the ways to write one
// character in Unicode are folded, so "A" is not "a", and a name that only looks
// like ".." is a name.
func elements(name string) ([]string, error) {
	switch {
	case name == "":
		return nil, fs.ErrInvalid
	case strings.HasPrefix(name, "/"):
		return nil, ErrEscape
	}
	return split(name)
}

func split(name string) ([]string, error) {
	switch {
	case len(name) > maxPath:
		return nil, syscall.ENAMETOOLONG
	case strings.IndexByte(name, 0) >= 0, !utf8.ValidString(name):
		return nil, errNotText
	}
	var list []string
	for e := range strings.SplitSeq(name, "/") {
		switch {
		case e == "" || e == ".":
			continue
		case len(e) > maxName:
			return nil, syscall.ENAMETOOLONG
		}
		list = append(list, e)
	}
	return list, nil
}

// lastElement is what Info calls a file that was asked for by name.
func lastElement(name string) string { return path.Base(name) }

// checkTarget tells whether a link may be made with this target. It may lead out:
// following it is the error then.
func checkTarget(target string) error {
	switch {
	case target == "", strings.IndexByte(target, 0) >= 0, !utf8.ValidString(target):
		return fs.ErrInvalid
	case len(target) >= maxPath:
		return syscall.ENAMETOOLONG
	}
	return nil
}

// below cuts the path of a root off an absolute target.
func below(roots []string, target string) (string, bool) {
	for _, root := range roots {
		if rest, ok := strings.CutPrefix(target, root); ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(root, "/")) {
			return rest, true
		}
	}
	return "", false
}

// pathError says what failed and on which name, with the cause alone of what
// package os tells.
func pathError(op, name string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *fs.PathError:
		err = e.Err
	case *os.LinkError:
		err = e.Err
	}
	// os.Root has no error values for these.
	switch err.Error() {
	case "path escapes from parent":
		err = ErrEscape
	case "not a directory":
		err = syscall.ENOTDIR
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// missing tells whether err says that there is nothing.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
