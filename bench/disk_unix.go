//go:build linux || darwin

package main

import "golang.org/x/sys/unix"

// freeBytes is what an ordinary user may still write to the disk of dir.
func freeBytes(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Bsize), true
}

// flushDisks waits until all that was written is on its disk: the system would
// write it while something else is measured.
func flushDisks() { unix.Sync() }
