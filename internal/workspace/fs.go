package workspace

import (
	"io"
	"io/fs"
	"time"
)

// An FS is a directory tree that no name leads out of. Names are slash-separated and
// relative to its root; "." is the root. Links are resolved inside: one that
// leads out, by "..", by an absolute target or by being changed at the right
// moment, is an error wrapping ErrEscape. Its methods may run at once.
//
// Errors are of type *fs.PathError and wrap those of io/fs, or ENOTDIR, EISDIR,
// ENOTEMPTY, ELOOP and ENAMETOOLONG of package syscall (of which ENOTEMPTY is an
// fs.ErrExist too, so ask for it first), or ErrFull. A name is valid UTF-8, of at
// most 4096 bytes and 255 an element; a slash at its end says nothing.
type FS interface {
	// Root is how the root is called where people and models read it: the path of
	// a folder, or /workspace.
	Root() string
	Stat(name string) (Info, error)  // of what a link leads to
	Lstat(name string) (Info, error) // of the link itself
	// ReadDir returns what is in a directory, by name, links unresolved.
	ReadDir(name string) ([]Info, error)
	Open(name string) (File, error)
	// Write makes or replaces a file, whole or not at all, following a link in the
	// last place as far as it stays inside. The parent must exist. It takes size
	// bytes from r; that r has less is io.ErrUnexpectedEOF. What is replaced keeps
	// its mode, and a reader that has it open goes on reading the old content.
	Write(name string, r io.Reader, size int64) error
	// Create is Write for a file that must not exist.
	Create(name string, r io.Reader, size int64) error
	Mkdir(name string) error    // parent must exist; fs.ErrExist when something is there
	MkdirAll(name string) error // fine when it is there already
	// Rename moves a file or directory; fs.ErrExist when something is at the new
	// name, and nothing is moved into itself.
	Rename(from, to string) error
	Remove(name string) error    // a file, a link, or an empty directory
	RemoveAll(name string) error // and all below
	Symlink(target, name string) error
	// Chmod gives what a name leads to other permissions.
	Chmod(name string, mode fs.FileMode) error
}

// Info describes a file. Times a tree does not keep are the time of the change.
type Info struct {
	Name     string // the last element
	Mode     fs.FileMode
	Size     int64
	Modified time.Time
	Created  time.Time
	Accessed time.Time
	Target   string // of a link
}

// A File is open for reading.
type File interface {
	io.ReaderAt
	io.Closer
	Info() Info
}
