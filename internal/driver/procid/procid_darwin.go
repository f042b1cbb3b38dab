package procid

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SSTOP and SZOMB of sys/proc.h.
const (
	stateStopped = 4
	stateZombie  = 5
)

func look(pid int) (State, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	switch {
	case errors.Is(err, syscall.EIO): // an answer of no length
		return State{}, syscall.ESRCH
	case err != nil:
		return State{}, err
	case int(k.Proc.P_pid) != pid:
		return State{}, syscall.ESRCH
	}
	return stateOf(k), nil
}

// stateOf has the start in microseconds since 1970.
func stateOf(k *unix.KinfoProc) State {
	t := k.Proc.P_starttime
	return State{
		ID:    ID{Start: uint64(t.Sec)*1e6 + uint64(t.Usec)},
		Group: int(k.Eproc.Pgid),
		Dead:  k.Proc.P_stat == stateZombie,
	}
}

func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// GroupLives reports whether a process of a group still runs. A group of dead
// ones answers EPERM here.
func GroupLives(pgid int) bool {
	if err := syscall.Kill(-pgid, 0); err != nil {
		return false
	}
	all, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", pgid)
	if err != nil {
		return true
	}
	for i := range all {
		if s := stateOf(&all[i]); s.Group == pgid && !s.Dead {
			return true
		}
	}
	return false
}

// Signal signals the process, unless its pid is another's by now.
func (id ID) Signal(sig syscall.Signal) error {
	if err := id.check(); err != nil {
		return err
	}
	if err := syscall.Kill(id.PID, sig); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return os.ErrProcessDone
}

func stands(pid int) bool {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err == nil && int(k.Proc.P_pid) == pid && (k.Proc.P_stat == stateStopped || k.Proc.P_stat == stateZombie)
}
