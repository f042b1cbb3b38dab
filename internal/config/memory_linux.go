package config

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// machineMemory is the memory that this process may use, in bytes: that of the
// machine, or less where a cgroup says so. Zero when it is not known.
func machineMemory() int64 { return memoryOf(os.DirFS("/")) }

func memoryOf(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	if data, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		for line := range bytes.Lines(data) {
			if f := strings.Fields(string(line)); len(f) == 3 && f[0] == "MemTotal:" {
				if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil && kib > 0 && kib < math.MaxInt64>>10 {
					least = kib << 10
				}
			}
		}
	}
	if data, err := fs.ReadFile(root, "proc/self/cgroup"); err == nil {
		lines := bufio.NewScanner(bytes.NewReader(data))
		for lines.Scan() {
			// 0::/path in version 2, 9:memory:/path in version 1.
			f := strings.SplitN(lines.Text(), ":", 3)
			switch {
			case len(f) != 3:
			case f[0] == "0" && f[1] == "":
				least = min(least, cgroupLimit(root, "sys/fs/cgroup", f[2], "memory.max"))
			case f[1] == "memory":
				least = min(least, cgroupLimit(root, "sys/fs/cgroup/memory", f[2], "memory.limit_in_bytes"))
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// cgroupLimit is the least limit of a group and those above it. In a container
// the path may be one of the host's: then only the last, which is the
// container's own, is there.
func cgroupLimit(root fs.FS, mount, group, file string) int64 {
	least := int64(math.MaxInt64)
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		if data, err := fs.ReadFile(root, path.Join(mount, dir, file)); err == nil {
			if v, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && v > 0 {
				least = min(least, v)
			}
		}
		if dir == "/" {
			return least
		}
	}
}
