package config

import (
	"math"

	"golang.org/x/sys/unix"
)

// machineMemory is the memory of the machine in bytes; zero when it is not
// known.
func machineMemory() int64 {
	v, err := unix.SysctlUint64("hw.memsize")
	if err != nil || v > math.MaxInt64 {
		return 0
	}
	return int64(v)
}
