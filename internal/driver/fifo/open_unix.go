//go:build linux || darwin

package fifo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Make makes the two FIFOs in a folder that has none, for this user alone.
func Make(dir string) error { return makeFIFOs(dir, In, Out) }

// MakeInput makes only what the program reads.
func MakeInput(dir string) error { return makeFIFOs(dir, In) }

func makeFIFOs(dir string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			return fmt.Errorf("make a named pipe (the state folder must be on a file system that has them): %w", &os.PathError{Op: "mkfifo", Path: path, Err: err})
		}
	}
	return nil
}

// Program opens the ends of the program. They are opened apart from ours, because
// whether an end blocks is a property of the opening, and the program must block
// and we must not. The caller closes them once the program has them.
func Program(dir string) (in, out *os.File, err error) {
	if in, err = ProgramInput(dir); err != nil {
		return nil, nil, err
	}
	if out, err = open(dir, Out, unix.O_RDWR); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// ProgramInput is Program for the input alone.
func ProgramInput(dir string) (*os.File, error) { return open(dir, In, unix.O_RDWR) }

// OpenInput opens our end of the program's input, which takes deadlines. The program's
// end must be open.
func OpenInput(dir string) (*os.File, error) { return open(dir, In, unix.O_WRONLY|unix.O_NONBLOCK) }

// Unread is how many bytes the program has not read of what was written to its input.
func Unread(input *os.File) (n int, err error) {
	raw, err := input.SyscallConn()
	if err != nil {
		return 0, err
	}
	if failed := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), fionread) }); failed != nil {
		return 0, failed
	}
	return n, err
}

// Open opens our ends. The program's ends must be open.
func Open(dir string) (*Pipe, error) {
	r, err := open(dir, Out, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w, err := OpenInput(dir)
	if err != nil {
		r.Close()
		return nil, err
	}
	p, err := newPipe(r, w)
	if err != nil {
		r.Close()
		w.Close()
		return nil, err
	}
	return p, nil
}

func open(dir, name string, mode int) (*os.File, error) {
	path := filepath.Join(dir, name)
	for {
		fd, err := unix.Open(path, mode|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			unix.Close(fd)
			return nil, &os.PathError{Op: "open", Path: path, Err: errNotFIFO}
		}
		return os.NewFile(uintptr(fd), path), nil
	}
}

var errNotFIFO = errors.New("not a FIFO")

// Unusable reports whether an error of opening FIFOs means that they will never
// work again, unlike, say, too many open files.
func Unusable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFIFO) || errors.Is(err, syscall.ENXIO) ||
		errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR)
}
