package srt

import (
	"os"
	"strconv"
	"strings"
)

// placeOf is where an open file is.
func placeOf(f *os.File) (at string, ok bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return "", false
	}
	var failed error
	err = conn.Control(func(fd uintptr) { at, failed = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(fd))) })
	return at, err == nil && failed == nil && strings.HasPrefix(at, "/") && !strings.HasSuffix(at, " (deleted)")
}
