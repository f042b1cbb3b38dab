//go:build unix

package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapNotes maps a file of so many zeros into memory, in the place of the one that is
// there: what has that mapped must not see it become shorter.
func mapNotes(path string, size int) ([]byte, error) {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	if err := os.Rename(part, path); err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmapNotes(mem []byte) error { return unix.Munmap(mem) }
