//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kids waits for every child of the helper: those that it started, and the
// sandboxes, which become its children when the process that made them has ended.
type kids struct {
	starting sync.RWMutex // held for reading while a child is being started

	mu    sync.Mutex
	wait  map[int]chan syscall.WaitStatus
	asked map[int]chan syscall.WaitStatus // expected, and not asked for yet
	early map[int]syscall.WaitStatus      // not expected yet
	heard chan os.Signal
}

// maxEarly bounds how many exits of children are kept: no caller asks for those of
// gofers and some others.
const maxEarly = 1024

func newKids() *kids {
	k := &kids{wait: make(map[int]chan syscall.WaitStatus), early: make(map[int]syscall.WaitStatus), asked: make(map[int]chan syscall.WaitStatus), heard: make(chan os.Signal, 1)}
	signal.Notify(k.heard, unix.SIGCHLD)
	go func() {
		for range k.heard {
			k.reap()
		}
	}()
	return k
}

func (k *kids) reap() {
	for {
		k.starting.Lock() // no child is reaped before its starter waits for it
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		k.starting.Unlock()
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		k.mu.Lock()
		if c := k.wait[pid]; c != nil {
			c <- ws
			close(c)
			delete(k.wait, pid)
		} else if len(k.early) < maxEarly {
			k.early[pid] = ws
		}
		k.mu.Unlock()
	}
}

// run runs a program to its end.
func (k *kids) run(path string, args []string, attr *syscall.ProcAttr) (status int, err error) {
	done := make(chan syscall.WaitStatus, 1)
	k.starting.RLock()
	pid, err := syscall.ForkExec(path, args, attr)
	if err == nil {
		k.mu.Lock()
		k.wait[pid] = done
		k.mu.Unlock()
	}
	k.starting.RUnlock()
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", args[0], err)
	}
	ws := <-done
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// expect notes that the status of a process will be asked for.
func (k *kids) expect(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := make(chan syscall.WaitStatus, 1)
	if ws, ok := k.early[pid]; ok {
		c <- ws
		close(c)
		delete(k.early, pid)
	}
	clear(k.early) // no other dead child is asked for by now
	k.wait[pid], k.asked[pid] = c, c
}

// ending receives how a process ended, once, and is closed where that is not
// known.
func (k *kids) ending(pid int) <-chan syscall.WaitStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.asked[pid]
	if c == nil {
		c = make(chan syscall.WaitStatus)
		close(c)
	}
	delete(k.asked, pid)
	return c
}

// noWait is a deadline for reading what is there.
func noWait() time.Time { return time.Now().Add(100 * time.Millisecond) }

// lastError is the last error in gVisor's log.
func lastError(log []byte, status int) string {
	last := fmt.Sprintf("it ended with status %d", status)
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Level, Msg string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Level == "error" {
			last = strings.TrimSpace(line.Msg)
		}
	}
	return last
}
