package procid

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func look(pid int) (State, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return State{}, err
	}
	return parseStat(b)
}

// parseStat reads /proc/PID/stat: the pid, the program's name in parentheses,
// which may hold anything, and then fields from the third on. The start is in
// clock ticks since the boot.
func parseStat(b []byte) (State, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return State{}, fmt.Errorf("odd process status %q", b)
	}
	fields := bytes.Fields(b[i+1:])
	const state, group, threads, startTime, memory, envEnd = 0, 2, 17, 19, 20, 48 // proc(5) counts from 1, and from the pid
	if len(fields) <= envEnd {
		return State{}, fmt.Errorf("odd process status %q", b)
	}
	pgrp, err := strconv.Atoi(string(fields[group]))
	if err != nil {
		return State{}, fmt.Errorf("odd process status %q", b)
	}
	start, err := strconv.ParseUint(string(fields[startTime]), 10, 64)
	if err != nil {
		return State{}, fmt.Errorf("odd process status %q", b)
	}
	// The first thread may be dead while others run.
	zombie := (fields[state][0] == 'Z' || fields[state][0] == 'X') && (string(fields[threads]) == "1" || string(fields[threads]) == "0")
	return State{
		ID:    ID{Start: start},
		Group: pgrp,
		Dead:  zombie,
		// The kernel's own threads have no memory.
		Young: string(fields[memory]) != "0" && string(fields[envEnd]) == "0",
	}, nil
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// All lists the pids of the processes that we can see.
func All() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what could be read is better than nothing
	out := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// GroupLives reports whether a process of a group still runs. A zombie does not count.
func GroupLives(pgid int) bool {
	if err := syscall.Kill(-pgid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	for _, pid := range All() {
		if s, err := Look(pid); err == nil && s.Group == pgid && !s.Dead {
			return true
		}
	}
	return false
}

// Signal signals the process, unless its pid is another's by now.
func (id ID) Signal(sig syscall.Signal) error {
	fd := openProcess(id.PID)
	if fd >= 0 {
		defer unix.Close(fd)
	}
	// Looked at while we have hold of it: what lives now is what the descriptor
	// refers to.
	if err := id.check(); err != nil {
		return err
	}
	var err error
	if fd < 0 {
		err = syscall.Kill(id.PID, sig)
	} else {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// stands looks at every thread: one may be in the middle of a write when the
// others are stopped already.
func stands(pid int) bool {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	d, err := os.Open(tasks)
	if err != nil {
		return false
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return false
	}
	for _, name := range names {
		b, err := os.ReadFile(tasks + name + "/stat")
		if gone(err) {
			continue
		}
		if i := bytes.LastIndexByte(b, ')'); i < 0 || i+2 >= len(b) || !strings.ContainsRune("TtZXx", rune(b[i+2])) {
			return false
		}
	}
	return true
}
