package files

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/text/unicode/norm"

	"github.com/tine-mcp/tine/internal/workspace"
)

// maxLinks is how many links may be on the way to one file.
const maxLinks = 40

// windows reports whether the root is a path as Windows writes them.
func (s *server) windows() bool {
	return filepath.Separator == '\\' && !strings.HasPrefix(s.tree.Root(), "/")
}

// shown is a name of the tree as people and models read it.
func (s *server) shown(name string) string {
	root := s.tree.Root()
	if name == "." {
		return root
	}
	if s.windows() {
		return strings.TrimSuffix(root, `\`) + `\` + strings.ReplaceAll(name, "/", `\`)
	}
	return strings.TrimSuffix(root, "/") + "/" + name
}

// name turns a path as asked for into a name of the tree: one below the root, or
// relative to it. Dots are resolved in the text, before links are looked at.
func (s *server) name(asked string) (string, error) {
	root, p := s.tree.Root(), asked
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", s.outside(strings.ReplaceAll(p, "\x00", `\0`))
	case p == "~" || strings.HasPrefix(p, "~/"):
		// A home directory is never in a workspace, and no user has one here.
		return "", s.outside(p)
	}
	same := func(a, b string) bool { return a == b }
	if s.windows() {
		root, p = filepath.ToSlash(root), strings.ReplaceAll(p, `\`, "/")
		same = strings.EqualFold
		if vol := filepath.VolumeName(asked); vol != "" && !path.IsAbs(p[len(vol):]) {
			return "", s.outside(asked) // relative to where a drive happens to be
		}
	} else if drive(p) {
		return "", toolErrorf("Access denied - Windows-style path received on a POSIX host: %s", asked)
	}
	root = path.Clean(root)
	abs := path.Clean(p)
	if path.IsAbs(p) && !s.windows() { // the root may have other names
		if rest, ok := workspace.Inside(s.tree, abs); ok && rest != "" {
			return rest, nil
		} else if ok {
			return ".", nil
		}
	}
	if !path.IsAbs(p) && !(s.windows() && filepath.VolumeName(asked) != "") {
		abs = path.Join(root, p)
	}
	if len(abs) >= len(root) && same(abs[:len(root)], root) {
		rest := abs[len(root):]
		switch {
		case rest == "":
			return ".", nil
		case rest[0] == '/' && len(rest) > 1:
			return rest[1:], nil
		case root == "/":
			return rest, nil
		}
	}
	return "", s.outside(abs)
}

// drive reports whether a path begins with the letter of one.
func drive(p string) bool {
	if len(p) < 2 || p[1] != ':' || len(p) > 2 && p[2] != '/' && p[2] != '\\' {
		return false
	}
	c := p[0] | 0x20
	return 'a' <= c && c <= 'z'
}

// A place is what a path means.
type place struct {
	name  string // where it really is: no part of it is a link
	info  workspace.Info
	found bool // else nothing is there
}

// find resolves a path. What is not there may still be named, to make it.
func (s *server) find(asked string) (place, error) {
	name, err := s.name(asked)
	if err != nil {
		return place{}, err
	}
	return s.resolve(name)
}

// resolve follows the links of a name one by one. The tree would do that too; but
// results and messages show where a file really is, and a name that exists in
// another Unicode form means that one.
func (s *server) resolve(name string) (place, error) {
	type element struct {
		name   string
		linked bool // from the target of a link
	}
	var todo []element
	add := func(p string, linked bool) {
		var list []element
		for e := range strings.SplitSeq(p, "/") {
			if e != "" && e != "." {
				list = append(list, element{e, linked})
			}
		}
		todo = append(list, todo...)
	}
	add(name, false)
	at := place{name: ".", info: workspace.Info{Mode: fs.ModeDir}, found: true}
	links := 0
	for len(todo) > 0 {
		e := todo[0]
		todo = todo[1:]
		if !at.info.Mode.IsDir() {
			return place{}, s.fail(syscall.ENOTDIR, "realpath", name)
		}
		if e.name == ".." { // in a target only: name has none
			if at.name == "." {
				return place{}, s.escapes(name)
			}
			at = place{name: path.Dir(at.name), info: workspace.Info{Mode: fs.ModeDir}, found: true}
			continue
		}
		next, info, err := s.entry(at.name, e.name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && e.linked:
			return place{}, s.dangling(name)
		case errors.Is(err, fs.ErrNotExist):
			// Below nothing there is nothing: the rest is taken as it is.
			for _, r := range todo {
				next = path.Join(next, r.name)
			}
			return place{name: next}, nil
		case errors.Is(err, workspace.ErrEscape):
			return place{}, s.escapes(name)
		case errors.As(err, new(ambiguous)):
			return place{}, err
		case err != nil:
			return place{}, s.fail(err, "realpath", name)
		case info.Mode&fs.ModeSymlink == 0:
			at = place{name: next, info: info, found: true}
			continue
		}
		if links++; links > maxLinks {
			return place{}, s.fail(syscall.ELOOP, "realpath", name)
		}
		target := info.Target
		if path.IsAbs(target) || filepath.VolumeName(target) != "" {
			if target, err = s.name(target); err != nil {
				// The tree may know its root by another name than it shows.
				if info, err = s.tree.Stat(next); err != nil {
					return place{}, s.escapes(name)
				}
				at = place{name: next, info: info, found: true}
				continue
			}
			at = place{name: ".", info: workspace.Info{Mode: fs.ModeDir}, found: true}
		}
		add(target, true)
	}
	if at.info.Name == "" {
		// The root, or a directory that ".." led back to, was not looked at yet.
		info, err := s.tree.Lstat(at.name)
		if err != nil {
			return place{}, s.fail(err, "realpath", name)
		}
		at.info = info
	}
	return at, nil
}

// entry finds an element of a directory, in the Unicode form in which it exists.
func (s *server) entry(dir, element string) (string, workspace.Info, error) {
	name := path.Join(dir, element)
	info, err := s.tree.Lstat(name)
	if !errors.Is(err, fs.ErrNotExist) || isASCII(element) {
		return name, info, err
	}
	list, listErr := s.tree.ReadDir(dir)
	if listErr != nil {
		return name, info, err
	}
	same := []workspace.Info{}
	for _, i := range list {
		if norm.NFC.String(i.Name) == norm.NFC.String(element) {
			same = append(same, i)
		}
	}
	switch len(same) {
	case 0:
		return name, info, err
	case 1:
		return path.Join(dir, same[0].Name), same[0], nil
	}
	return name, info, ambiguous(element)
}

// ambiguous is the error of a name that exists in several other Unicode forms.
type ambiguous string

func (a ambiguous) Error() string { return "Ambiguous Unicode path component: " + string(a) }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
