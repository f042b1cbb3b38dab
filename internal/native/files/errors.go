package files

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"

	"github.com/tine-mcp/tine/internal/workspace"
)

// toolError is an error in the words that the caller reads, which are those of the
// reference server wherever both fail alike.
type toolError string

func (t toolError) Error() string { return string(t) }

func toolErrorf(format string, args ...any) error { return toolError(fmt.Sprintf(format, args...)) }

// conditions are how the reference server, which runs on Node.js, words the
// failures of a filesystem. Models have learned to read those.
var conditions = []struct {
	is         error
	code, text string
}{
	{syscall.ENOTDIR, "ENOTDIR", "not a directory"},
	{syscall.EISDIR, "EISDIR", "illegal operation on a directory"},
	{syscall.ENOTEMPTY, "ENOTEMPTY", "directory not empty"},
	{syscall.ENAMETOOLONG, "ENAMETOOLONG", "name too long"},
	{syscall.ELOOP, "ELOOP", "too many symbolic links encountered"},
	{syscall.EROFS, "EROFS", "read-only file system"},
	{fs.ErrNotExist, "ENOENT", "no such file or directory"},
	{fs.ErrExist, "EEXIST", "file already exists"},
	{fs.ErrPermission, "EACCES", "permission denied"},
	{fs.ErrInvalid, "EINVAL", "invalid argument"},
}

// fail words an error of the tree: what was done, and to which real names.
func (s *server) fail(err error, did string, names ...string) error {
	if errors.Is(err, workspace.ErrEscape) {
		return s.escapes(names[0])
	}
	where := ""
	for i, n := range names {
		if i > 0 {
			where += " ->"
		}
		where += " '" + s.shown(n) + "'"
	}
	for _, c := range conditions {
		if errors.Is(err, c.is) {
			return toolErrorf("%s: %s, %s%s", c.code, c.text, did, where)
		}
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s%s: %w", did, where, err)
}

// escapes does not say where the link leads: that is outside.
func (s *server) escapes(name string) error {
	return toolErrorf("Access denied - symlink target outside allowed directories: %s not in %s", s.shown(name), s.tree.Root())
}

func (s *server) outside(asked string) error {
	return toolErrorf("Access denied - path outside allowed directories: %s not in %s", asked, s.tree.Root())
}

func (s *server) dangling(name string) error {
	return toolErrorf("Parent directory does not exist: %s", s.shown(path.Dir(name)))
}
