package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func environ(arguments) (string, error) { return strings.Join(os.Environ(), "\n"), nil }

// environs is the environment of every process that is to be seen.
func environs(arguments) (string, error) { return eachProcess("environ") }

// spy is all that /proc tells about every process in words.
func spy(arguments) (string, error) {
	return eachProcess("cmdline", "comm", "mounts", "mountinfo", "maps", "status", "cgroup", "limits", "uid_map", "gid_map")
}

func eachProcess(names ...string) (string, error) {
	pids, err := processIDs()
	var all strings.Builder
	for _, pid := range pids {
		for _, name := range names {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
			fmt.Fprintf(&all, "%d %s %v\n%s\n", pid, name, err, b)
		}
	}
	return all.String(), err
}

func processIDs() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

func processes(arguments) (string, error) {
	pids, err := processIDs()
	return fmt.Sprint(pids, " self ", os.Getpid()), err
}

// execute runs a program, with arguments that have no spaces.
func execute(a arguments) (string, error) {
	cmd := exec.Command(a["path"], strings.Fields(a["args"])...)
	cmd.Stdin = strings.NewReader(a["input"])
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// ids says who the program is, and what it may do.
func ids(arguments) (string, error) {
	r, e, s := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	groups, err := unix.Getgroups()
	text := fmt.Sprintf("uid %d %d %d gid %d %d %d groups %v\n", r, e, s, rg, eg, sg, groups)
	b, readErr := os.ReadFile("/proc/thread-self/status")
	if readErr != nil {
		b, readErr = os.ReadFile("/proc/self/status")
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") || strings.HasPrefix(line, "Seccomp") {
			text += line
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	capErr := unix.Capget(&hdr, &data[0])
	text += fmt.Sprintf("capget %v\n", data)
	for _, e := range []error{readErr, capErr} {
		if err == nil {
			err = e
		}
	}
	return text, err
}

func kill(a arguments) (string, error) {
	return "", unix.Kill(int(a.number("pid")), unix.Signal(a.number("signal")))
}

func ptrace(a arguments) (string, error) {
	pid := int(a.number("pid"))
	if err := unix.PtraceAttach(pid); err != nil {
		return "", err
	}
	return "", unix.PtraceDetach(pid)
}

func vmRead(a arguments) (string, error) {
	b := make([]byte, 16)
	local := []unix.Iovec{{Base: &b[0], Len: 16}}
	_, err := unix.ProcessVMReadv(int(a.number("pid")), local, []unix.RemoteIovec{{Base: 0x400000, Len: 16}}, 0)
	return "", err
}
