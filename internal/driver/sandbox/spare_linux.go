//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// A machine with less memory to spare makes nothing ahead of time.
const spareShare, spareLeast = 10, 512 << 20

// memoryToSpare reports whether something may be made ahead of time.
func memoryToSpare() bool {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return true
	}
	total, available := meminfo(data, "MemTotal:"), meminfo(data, "MemAvailable:")
	return total == 0 || available > max(total/spareShare, spareLeast)
}

func meminfo(data []byte, name string) int64 {
	for line := range bytes.Lines(data) {
		if f := strings.Fields(string(line)); len(f) == 3 && f[0] == name {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}
