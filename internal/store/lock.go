package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrLocked reports that another gateway owns the state folder.
var ErrLocked = errors.New("state folder is in use")

// lockName is the file in the state folder whose lock says who owns it. It
// holds the owner's pid for people and messages; the lock alone decides. It is
// never removed: two gateways that lock a file and its successor would both
// own the folder.
const lockName = "lock"

// How long to wait for a lock whose recorded owner is dead. A process that was
// forked and has not yet executed its program shares the lock of its parent, so the
// lock of a gateway that was killed in a start is free a moment later. This also
// means that no such half-started process exists when the lock is taken.
const deadOwnerWait = 5 * time.Second

// Lock makes this process the owner of the state folder dir until release is called
// or the process ends in any way. The folder is made if it is missing. If another
// process owns it the error wraps ErrLocked and names that process.
func Lock(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder: %w", err)
	}
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the state folder: %w", err)
	}
	giveUp := time.Now().Add(deadOwnerWait)
	for {
		err = tryLock(f)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrLocked) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		pid := lockOwner(path)
		if pid == 0 || processRuns(pid) || time.Now().After(giveUp) {
			f.Close()
			return nil, lockedError(dir, pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := writeOwner(f); err != nil {
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

func lockedError(dir string, pid int) error {
	if pid == 0 {
		return fmt.Errorf("%w: another process owns %s; stop it or choose another state folder", ErrLocked, dir)
	}
	return fmt.Errorf("%w: process %d owns %s; stop it or choose another state folder", ErrLocked, pid, dir)
}

func writeOwner(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// lockOwner returns the pid in the lock file, or 0.
func lockOwner(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}
