package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/lines"
)

// identity tells one process from every other that ever had its pid.
type identity struct {
	start uint64 // in clock ticks since the boot
	pgrp  int
	dead  bool // it has exited and nobody has waited for it
	young bool // it is about to run a program, whose environment is not set yet
}

func identify(pid int) (identity, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return identity{}, err
	}
	return parseStat(b)
}

// parseStat reads /proc/PID/stat: the pid, the program's name in parentheses,
// which may hold anything, and then fields from the third on.
func parseStat(b []byte) (identity, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return identity{}, fmt.Errorf("odd process status %q", b)
	}
	fields := bytes.Fields(b[i+1:])
	const state, group, threads, startTime, memory, envEnd = 0, 2, 17, 19, 20, 48 // proc(5) counts from 1, and from the pid
	if len(fields) <= envEnd {
		return identity{}, fmt.Errorf("odd process status %q", b)
	}
	pgrp, err := strconv.Atoi(string(fields[group]))
	if err != nil {
		return identity{}, fmt.Errorf("odd process status %q", b)
	}
	start, err := strconv.ParseUint(string(fields[startTime]), 10, 64)
	if err != nil {
		return identity{}, fmt.Errorf("odd process status %q", b)
	}
	// The first thread may be dead while others run.
	zombie := (fields[state][0] == 'Z' || fields[state][0] == 'X') && (string(fields[threads]) == "1" || string(fields[threads]) == "0")
	return identity{
		start: start,
		pgrp:  pgrp,
		dead:  zombie,
		// The kernel's own threads have no memory.
		young: string(fields[memory]) != "0" && string(fields[envEnd]) == "0",
	}, nil
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// groupLives reports whether a process of the group still runs. One that is
// dead and that nobody waits for does not count.
func groupLives(pgid int) bool {
	if err := syscall.Kill(-pgid, 0); errors.Is(err, syscall.ESRCH) {
		return false
	}
	for _, pid := range pids() {
		if id, err := identify(pid); err == nil && id.pgrp == pgid && !id.dead {
			return true
		}
	}
	return false
}

func pids() []int {
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

// scan looks at every process once and reports the tokens and folders that it
// belongs to. We are never among them.
func scan(found func(p member)) {
	self := os.Getpid()
	env := make([]byte, 16<<10)
	for _, pid := range pids() {
		if pid == self {
			continue
		}
		proc := "/proc/" + strconv.Itoa(pid)
		var p member
		env, p.tokens = waitMarker(pid, env)
		// One that cleared its environment may still have our FIFOs.
		for _, fd := range []string{"/fd/0", "/fd/1", "/fd/2"} {
			target, err := os.Readlink(proc + fd)
			if err != nil {
				break
			}
			target = strings.TrimSuffix(target, " (deleted)")
			switch filepath.Base(target) {
			case inName, outName, lines.LogName, lines.LogOld:
				p.dirs = append(p.dirs, filepath.Dir(target))
			}
		}
		if len(p.tokens)+len(p.dirs) == 0 {
			continue
		}
		id, err := identify(pid)
		if err != nil || id.dead {
			continue
		}
		p.pid, p.start = pid, id.start
		found(p)
	}
}

// waitMarker returns the tokens in the environment of a process, and the buffer,
// grown where it had to be. In the middle of an exec a process has left the old
// environment and not got the new one; it would slip through if we did not wait
// for the moment to pass.
func waitMarker(pid int, buf []byte) ([]byte, []string) {
	path := "/proc/" + strconv.Itoa(pid) + "/environ"
	for giveUp := time.Now().Add(time.Second); ; time.Sleep(100 * time.Microsecond) {
		var n int
		var err error
		buf, n, err = readInto(path, buf)
		if err != nil {
			return buf, nil
		}
		if n > 0 || time.Now().After(giveUp) {
			return buf, markerIn(buf[:n])
		}
		if id, err := identify(pid); err != nil || !id.young {
			// It may have come of age between the two looks.
			buf, n, _ = readInto(path, buf)
			return buf, markerIn(buf[:n])
		}
	}
}

// readInto reads a file into the buffer, which it returns grown where it had to
// be.
func readInto(path string, buf []byte) ([]byte, int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return buf, 0, err
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return buf, 0, err
		}
		if m <= 0 {
			return buf, n, nil
		}
		n += m
	}
}

// signalMember signals a process that scan found, unless its pid is another's by
// now.
func signalMember(p member, sig syscall.Signal) {
	fd := openProcess(p.pid)
	if fd < 0 {
		if lives(p.pid, p.start) {
			syscall.Kill(p.pid, sig)
		}
		return
	}
	defer closeFD(fd)
	if lives(p.pid, p.start) {
		unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// stands reports whether a process runs nothing: each of its threads is stopped,
// or it is gone. A thread may be in the middle of a write when the others are
// stopped already.
func stands(pid int) bool {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	d, err := os.Open(tasks)
	if err != nil {
		return true
	}
	names, _ := d.Readdirnames(-1)
	d.Close()
	for _, name := range names {
		b, err := os.ReadFile(tasks + name + "/stat")
		if err != nil {
			continue
		}
		if i := bytes.LastIndexByte(b, ')'); i < 0 || i+2 >= len(b) || !strings.ContainsRune("TtZXx", rune(b[i+2])) {
			return false
		}
	}
	return true
}
