package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what a process has used: processor time since it started, and
// anonymous memory now.
type usage struct {
	cpu  time.Duration
	anon int64
}

func (u usage) since(before usage) usage {
	return usage{cpu: u.cpu - before.cpu, anon: u.anon}
}

// usageOf reads a process's usage; it is zero for pid 0 and for one that is gone.
func usageOf(pid int) usage {
	if pid <= 0 {
		return usage{}
	}
	return usage{cpu: cpuTime(pid), anon: anonymous(pid)}
}

// cpuTime is user and system time of all threads. The clock counts nanoseconds
// where /proc/PID/stat counts ticks of 10 ms, which is too coarse for a cell.
func cpuTime(pid int) time.Duration {
	const schedClock = 2 // CPUCLOCK_SCHED in the kernel's encoding of process clocks
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func anonymous(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, ok := bytes.Cut(status, []byte("RssAnon:"))
	if !ok {
		return 0
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// dieWithUs has the kernel kill the child when the thread that started it ends.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
