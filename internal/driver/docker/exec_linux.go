package docker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/procid"
)

// endsCommands reports whether this process may look at those in containers, and kill
// them.
func endsCommands() bool { return os.Geteuid() == 0 }

// marked are the processes whose environment has a variable, which may be only the
// beginning of one.
func marked(mark string) []procid.ID {
	var all []procid.ID
	for _, pid := range procid.All() {
		if !hasMark(pid, mark) {
			continue
		}
		if s, err := procid.Look(pid); err == nil && !s.Dead {
			all = append(all, s.ID)
		}
	}
	return all
}

func hasMark(pid int, mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && (bytes.HasPrefix(env, []byte(mark)) || bytes.Contains(env, []byte("\x00"+mark)))
}

// endMarked kills the processes with a mark, until there are none: one may start others
// between being seen and being killed.
func endMarked(mark string) error {
	giveUp := time.Now().Add(killWait)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		all := marked(mark)
		if len(all) == 0 {
			return nil
		}
		for _, p := range all {
			_ = p.Signal(syscall.SIGKILL)
		}
		if time.Now().After(giveUp) {
			return fmt.Errorf("process %d of the command was killed and does not end", all[0].PID)
		}
		time.Sleep(pause)
	}
}

// waitFor waits for the end of a process that has a mark; false where it is not there, or
// ctx has ended.
func waitFor(ctx context.Context, pid int, mark string) bool {
	s, err := procid.Look(pid)
	if err != nil || !hasMark(pid, mark) {
		return false
	}
	w, err := procid.Watch(s.ID)
	if err != nil {
		return false
	}
	defer w.Close()
	for ctx.Err() == nil {
		exited, ok := w.Wait(100 * time.Millisecond)
		if exited || !ok {
			return exited
		}
	}
	return false
}

// exiting reports whether a process has ended or is about to: the first one of a container
// waits for the others, which the kernel kills.
func exiting(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	const flags, pfExiting = 6, 0x4 // proc(5) counts from 1, and from the pid
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= flags {
		return false
	}
	n, err := strconv.ParseUint(string(fields[flags]), 10, 64)
	return err == nil && n&pfExiting != 0
}
