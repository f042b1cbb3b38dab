// Command attacker is an MCP server that tries to get out of its sandbox. Every
// tool is one attempt, and answers "ok" and what it got, or the name of the error
// that the kernel gave it. What could spoil the server itself is done by a child,
// where the argument child is set.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inherited are the descriptors that the program was started with.
var inherited = openDescriptors()

type arguments map[string]string

func (a arguments) number(name string) int64 {
	n, _ := strconv.ParseInt(a[name], 0, 64)
	return n
}

type tool func(arguments) (string, error)

var tools map[string]tool

func init() {
	tools = map[string]tool{
		"echo": func(a arguments) (string, error) { return a["text"], nil },

		"read": read, "keep": keep, "write": write, "list": list, "stat": stat, "link": link, "symlink": symlink, "rename": rename, "unlink": unlink,
		"mkdir": mkdir, "chmod": chmod, "chown": chown, "truncate": truncate, "utimes": utimes, "setxattr": setxattr, "mmap": mmapWrite,
		"mknod": mknod, "readlink": readlink, "find": find, "handle": handle, "deep": deep, "drip": drip,

		"environ": environ, "inherited": func(arguments) (string, error) { return inherited, nil }, "environs": environs, "exec": execute,
		"ids": ids, "processes": processes, "kill": kill, "ptrace": ptrace, "vmread": vmRead, "spy": spy,

		"syscall": system, "mounts": mounts, "namespaces": namespaces,

		"interfaces": interfaces, "connect": connect, "listen": listen, "lookup": lookup, "send": send, "socket": socket, "shm": shm,

		"fork": forks, "threads": threads, "limit": limit, "eat": eat, "memfd": nameless, "fill": fill, "open": openMany, "complain": complain, "babble": babble, "grow": grow, "spin": spin,
	}
}

func main() {
	if len(os.Args) > 1 {
		alone(os.Args[1:])
		return
	}
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			answer(line)
		}
	}
}

// alone is the program as a child: of a tool.
func alone(args []string) {
	a := arguments{}
	if len(args) > 1 {
		if err := json.Unmarshal([]byte(args[1]), &a); err != nil {
			fmt.Println("bad arguments", err)
			return
		}
	}
	fmt.Print(run(args[0], a))
}

func answer(line []byte) {
	var r struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name      string    `json:"name"`
			Arguments arguments `json:"arguments"`
		} `json:"params"`
	}
	if json.Unmarshal(line, &r) != nil || r.ID == nil {
		return
	}
	result := any(map[string]any{})
	switch r.Method {
	case "initialize":
		result = map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "attacker", "version": "1"}}
	case "tools/call":
		text := ""
		if r.Params.Arguments["child"] != "" {
			text = child(r.Params.Name, r.Params.Arguments)
		} else {
			text = run(r.Params.Name, r.Params.Arguments)
		}
		result = map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
	}
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.ID, "result": result})
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(b, '\n'))
}

// run does one attempt.
func run(name string, a arguments) string {
	t := tools[name]
	if t == nil {
		return "there is no tool " + name
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, err := t(a)
	if err != nil {
		return failure(err) + "\n" + err.Error()
	}
	return "ok\n" + text
}

func child(name string, a arguments) string {
	delete(a, "child")
	spareThreads()
	b, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	self := "/proc/self/exe"
	if a["self"] != "" {
		self = a["self"]
	}
	out, err := exec.Command(self, name, string(b)).Output()
	if err != nil && len(out) == 0 {
		return failure(err) + "\n" + err.Error()
	}
	return string(out)
}

// failure is the name of an error.
func failure(err error) string {
	var errno syscall.Errno
	var exit *exec.ExitError
	switch {
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.As(err, &exit):
		return "exit"
	case os.IsTimeout(err):
		return "ETIMEDOUT"
	}
	return "error"
}

func openDescriptors() string {
	var open []string
	for fd := range 1024 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			to, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
			open = append(open, fmt.Sprint(fd, "=", to))
		}
	}
	return strings.Join(open, " ")
}
