package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrLocked reports that another process owns the state folder. Every such error is a
// *LockedError.
var ErrLocked = errors.New("state folder is in use")

// A LockedError says which process owns the state folder.
type LockedError struct {
	Dir     string
	PID     int  // 0 when it is not known
	Command bool // a command that is done soon, and not a gateway
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = "process " + strconv.Itoa(e.PID)
	}
	if e.Command {
		return fmt.Sprintf("%v: another tine command, %s, uses %s", ErrLocked, who, e.Dir)
	}
	return fmt.Sprintf("%v: %s owns %s", ErrLocked, who, e.Dir)
}

func (e *LockedError) Unwrap() error { return ErrLocked }

// lockName is the file in the state folder whose lock says who owns it. It
// holds the owner's pid, and in a second line that the owner is a command, for people
// and messages; the lock alone decides. It is never removed: two gateways that lock a
// file and its successor would both own the folder.
const lockName = "lock"

const ofCommand = "command"

// ownerWait is how long to wait for an owner that is done soon: a command, or one that
// has not written yet who it is, or one that is dead. A process that was forked and has
// not yet executed its program shares the lock of its parent, so the lock of a gateway
// that was killed in a start is free a moment later. This also means that no such
// half-started process exists when the lock is taken.
const ownerWait = 10 * time.Second

// Lock makes this process, a gateway, the owner of the state folder dir until release
// is called or the process ends in any way. The folder is made if it is missing. It
// waits for a command that owns it, up to ten seconds.
func Lock(dir string) (release func(), err error) {
	return lock(context.Background(), dir, "")
}

// LockForCommand is Lock for a command that soon releases the folder.
func LockForCommand(ctx context.Context, dir string) (release func(), err error) {
	return lock(ctx, dir, ofCommand+"\n")
}

func lock(ctx context.Context, dir, as string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w", err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the state folder: %w", err)
	}
	giveUp := time.Now().Add(ownerWait)
	for {
		err = tryLock(f)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrLocked) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		pid, command := lockOwner(path)
		if pid != 0 && !command && processRuns(pid) || time.Now().After(giveUp) || ctx.Err() != nil {
			f.Close()
			return nil, &LockedError{Dir: dir, PID: pid, Command: command}
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := writeOwner(f, as); err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return func() {
		// Emptied first, so that no process reads the pid of a dead owner. A
		// failure is harmless: the next owner overwrites it.
		_ = f.Truncate(0)
		f.Close()
	}, nil
}

func writeOwner(f *os.File, as string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"+as), 0)
	return err
}

// lockOwner returns the pid in the lock file, or 0, and whether it is that of a command.
func lockOwner(path string) (pid int, command bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	first, second, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	pid, err = strconv.Atoi(first)
	if err != nil || pid < 1 {
		return 0, false
	}
	return pid, second == ofCommand
}
