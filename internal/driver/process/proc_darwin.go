package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity tells one process from every other that ever had its pid.
type identity struct {
	start uint64 // in microseconds since 1970
	pgrp  int
	dead  bool // it has exited and nobody has waited for it
}

// SSTOP and SZOMB of sys/proc.h.
const (
	stateStopped = 4
	stateZombie  = 5
)

func identify(pid int) (identity, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return identity{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	if int(k.Proc.P_pid) != pid {
		return identity{}, os.ErrProcessDone
	}
	return identityOf(k), nil
}

func identityOf(k *unix.KinfoProc) identity {
	t := k.Proc.P_starttime
	return identity{
		start: uint64(t.Sec)*1e6 + uint64(t.Usec),
		pgrp:  int(k.Eproc.Pgid),
		dead:  k.Proc.P_stat == stateZombie,
	}
}

func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// groupLives reports whether a process of the group still runs. A group of dead
// ones answers EPERM here.
func groupLives(pgid int) bool {
	if err := syscall.Kill(-pgid, 0); err != nil {
		return false
	}
	all, err := unix.SysctlKinfoProcSlice("kern.proc.pgrp", pgid)
	if err != nil {
		return true
	}
	for i := range all {
		if id := identityOf(&all[i]); id.pgrp == pgid && !id.dead {
			return true
		}
	}
	return false
}

// scan looks at every process of this user once and reports the tokens that it
// belongs to. We are never among them.
func scan(found func(p member)) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.uid", os.Getuid())
	if err != nil {
		return
	}
	for i := range all {
		pid := int(all[i].Proc.P_pid)
		id := identityOf(&all[i])
		if pid == os.Getpid() || id.dead {
			continue
		}
		// The number of arguments, the program, padding, the arguments and then
		// the environment, each ended by a zero byte.
		b, err := unix.SysctlRaw("kern.procargs2", pid)
		if err != nil || len(b) < 4 {
			continue
		}
		args := int(binary.NativeEndian.Uint32(b))
		b = b[4:]
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = bytes.TrimLeft(b[i:], "\x00")
		}
		for ; args > 0; args-- {
			i := bytes.IndexByte(b, 0)
			if i < 0 {
				break
			}
			b = b[i+1:]
		}
		if tokens := markerIn(b); len(tokens) > 0 {
			found(member{pid: pid, start: id.start, tokens: tokens})
		}
	}
}

// signalMember signals a process that scan found, unless its pid is another's by
// now.
func signalMember(p member, sig syscall.Signal) {
	if lives(p.pid, p.start) {
		if err := syscall.Kill(p.pid, sig); errors.Is(err, syscall.EPERM) {
			return // not ours; the caller sees that it goes on
		}
	}
}

// stands reports whether a process runs nothing: it is stopped, or gone.
func stands(pid int) bool {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err != nil || int(k.Proc.P_pid) != pid || k.Proc.P_stat == stateStopped || k.Proc.P_stat == stateZombie
}
