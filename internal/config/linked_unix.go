//go:build unix

package config

import (
	"io/fs"
	"syscall"
)

// linked reports whether a file has more than one name.
func linked(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && s.Nlink > 1
}
