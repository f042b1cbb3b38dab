package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// system makes one system call. Its arguments are numbers, s:TEXT for a string
// and b:N for so many bytes.
func system(a arguments) (string, error) {
	var values [6]uintptr
	var kept []any
	for i := range values {
		text, ok := a[strconv.Itoa(i)]
		if !ok {
			continue
		}
		if s, ok := strings.CutPrefix(text, "s:"); ok {
			b := append([]byte(s), 0)
			kept = append(kept, b)
			values[i] = uintptr(unsafe.Pointer(&b[0]))
			continue
		}
		if s, ok := strings.CutPrefix(text, "b:"); ok {
			n, _ := strconv.Atoi(s)
			b := make([]byte, max(n, 1))
			kept = append(kept, b)
			values[i] = uintptr(unsafe.Pointer(&b[0]))
			continue
		}
		values[i] = uintptr(a.number(strconv.Itoa(i)))
	}
	r, _, errno := unix.Syscall6(uintptr(a.number("number")), values[0], values[1], values[2], values[3], values[4], values[5])
	runtime.KeepAlive(kept)
	if errno != 0 {
		return "", errno
	}
	return fmt.Sprint(int64(r)), nil
}

// mounts tries to mount something on a new directory, and to read a file through
// it.
func mounts(a arguments) (string, error) {
	at, err := os.MkdirTemp("/tmp", "mount")
	if err != nil {
		return "", err
	}
	if err := unix.Mount(a["source"], at, a["type"], uintptr(a.number("flags")), a["data"]); err != nil {
		return "", err
	}
	if a["read"] == "" {
		return "", nil
	}
	return read(arguments{"path": at + a["read"]})
}

// namespaces lets a child do what a tool does in a user namespace of its own, in
// which it is root.
func namespaces(a arguments) (string, error) {
	name := a["tool"]
	delete(a, "tool")
	b, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	cmd := exec.Command("/proc/self/exe", name, string(b))
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		return "", err
	}
	return string(out), nil
}
