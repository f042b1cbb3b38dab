package docker

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// deaf reports whether the first process of a container would not notice SIGTERM:
// the kernel drops signals to one that does not catch them.
func deaf(pid int) bool {
	if pid <= 0 {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if mask, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && n&(1<<(syscall.SIGTERM-1)) == 0
		}
	}
	return false
}
