package config

import (
	"math"
	"unsafe"

	"golang.org/x/sys/windows"
)

// memoryStatus is MEMORYSTATUSEX.
type memoryStatus struct {
	length, load                                                     uint32
	totalPhys, availPhys, totalPage, availPage, totalVirt, availVirt uint64
	availExtended                                                    uint64
}

// machineMemory is the memory of the machine in bytes; zero when it is not
// known.
func machineMemory() int64 {
	var s memoryStatus
	s.length = uint32(unsafe.Sizeof(s))
	ok, _, _ := windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx").Call(uintptr(unsafe.Pointer(&s)))
	if ok == 0 || s.totalPhys > math.MaxInt64 {
		return 0
	}
	return int64(s.totalPhys)
}
