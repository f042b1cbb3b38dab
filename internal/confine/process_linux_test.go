package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	return known(errno)
}

// threads of each kind that TestThreads has.
const threads = 32

func init() {
	children["calls"] = func(c *child) {
		var memory [64]byte
		at := uintptr(unsafe.Pointer(&memory))
		c.apply(c.rules())
		for name, err := range map[string]error{
			"ptrace":            call(unix.SYS_PTRACE, unix.PTRACE_PEEKDATA),
			"process_vm_readv":  call(unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid()), at, 0, at),
			"pidfd_getfd":       call(unix.SYS_PIDFD_GETFD, 0),
			"mount":             call(unix.SYS_MOUNT, at, at, at),
			"fsopen":            call(unix.SYS_FSOPEN, at),
			"open_tree":         call(unix.SYS_OPEN_TREE, 0, at),
			"chroot":            call(unix.SYS_CHROOT, at),
			"setns":             call(unix.SYS_SETNS),
			"unshare":           call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
			"clone into new":    call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)),
			"kexec_load":        call(unix.SYS_KEXEC_LOAD),
			"bpf":               call(unix.SYS_BPF),
			"keyctl":            call(unix.SYS_KEYCTL),
			"add_key":           call(unix.SYS_ADD_KEY),
			"request_key":       call(unix.SYS_REQUEST_KEY),
			"io_uring_setup":    call(unix.SYS_IO_URING_SETUP, 1, at),
			"shmget":            call(unix.SYS_SHMGET, 0, 4096, unix.IPC_CREAT),
			"open_by_handle_at": call(unix.SYS_OPEN_BY_HANDLE_AT),
			"execve":            call(unix.SYS_EXECVE, at),
			"execveat":          call(unix.SYS_EXECVEAT, 0, at),
			"input":             call(unix.SYS_IOCTL, 0, unix.TIOCSTI, at),
			"input, more bits":  call(unix.SYS_IOCTL, 0, 1<<32|unix.TIOCSTI, at),
			"a later one":       call(lastCall + 1),
			"x32":               call(0x40000000 | unix.SYS_GETPID),
			"getpid":            call(unix.SYS_GETPID),
			"clone3":            call(unix.SYS_CLONE3, at, 1), // too small a structure: the kernel looked at it
			"a capability":      call(unix.SYS_SETPRIORITY, 0, 0, ^uintptr(18)),
		} {
			c.try(name, err)
		}
		out, err := os.ReadFile("/proc/self/status")
		c.try("status: "+string(out), err)
	}

	children["threads"] = func(c *child) {
		inside, outside := c.dir+"/in/file", c.dir+"/out/secret"
		var (
			ready, done sync.WaitGroup
			stop        atomic.Bool
			applied     = make(chan struct{})
			results     = make(chan string, 4*threads)
		)
		// Each looks from a thread of its own.
		look := func(kind string) {
			for what, err := range map[string]error{
				"in": read(inside), "out": read(outside), "socket": socket(unix.AF_INET), "run": call(unix.SYS_EXECVE), "ptrace": call(unix.SYS_PTRACE, unix.PTRACE_PEEKDATA),
			} {
				word := "ok"
				if err != nil {
					var errno syscall.Errno
					errors.As(err, &errno)
					word = errno.Error()
				}
				results <- kind + " " + what + ": " + word
			}
		}
		r, w, err := os.Pipe()
		must(r, err)
		for i := range threads {
			// Some wait in the runtime and some in the kernel.
			blocked := i%2 == 0
			ready.Add(1)
			done.Go(func() {
				runtime.LockOSThread()
				ready.Done()
				if blocked {
					_, _ = unix.Read(int(r.Fd()), make([]byte, 1))
				} else {
					<-applied
				}
				look("before")
			})
		}
		// Others come and go, and keep the processors busy.
		var busy sync.WaitGroup
		for range 2 {
			busy.Go(func() {
				for !stop.Load() {
					end := make(chan struct{})
					go func() {
						runtime.LockOSThread() // the thread ends with it
						_ = make([]byte, 1<<16)
						close(end)
					}()
					<-end
				}
			})
		}
		seen := map[string]int{}
		gathered := make(chan struct{})
		go func() {
			defer close(gathered)
			for line := range results {
				seen[line]++
			}
		}()
		ready.Wait()
		c.apply(c.rules())
		close(applied)
		must(w.Write(make([]byte, threads)))
		for range threads {
			done.Go(func() {
				runtime.LockOSThread()
				look("after")
			})
		}
		runtime.GC()
		done.Wait()
		runtime.KeepAlive(r) // or its end closes it
		stop.Store(true)
		busy.Wait()
		close(results)
		<-gathered
		for line, n := range seen {
			c.try(fmt.Sprintf("%s x%d", line, n), nil)
		}
	}

	children["signals"] = func(c *child) {
		helper := exec.Command("/bin/sleep", "600")
		must(helper, helper.Start())
		c.apply(c.rules())
		c.try("signal", helper.Process.Signal(syscall.SIGTERM))
		_ = helper.Wait()
		c.try("ended: "+helper.ProcessState.String(), nil)
	}

	children["scoped"] = func(c *child) {
		helper := exec.Command("/bin/cat") // ends with its input
		in := must(helper.StdinPipe())
		must(helper, helper.Start())
		rules := c.rules()
		rules.ScopeSignals, rules.ScopeAbstract = true, true
		c.apply(rules)
		c.try("signal", helper.Process.Signal(syscall.SIGTERM))
		c.try("signal to itself", unix.Kill(os.Getpid(), 0))
		for range 3 {
			runtime.GC() // for which the runtime signals its threads
		}
		fd := must(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
		c.try("abstract", unix.Connect(fd, &unix.SockaddrUnix{Name: os.Getenv("ABSTRACT")}))
		in.Close()
		_ = helper.Wait()
	}
}

func TestCalls(t *testing.T) {
	out := run(t, command(t, "calls", tree(t)))
	want := map[string]syscall.Errno{
		"a later one": syscall.ENOSYS, "x32": syscall.ENOSYS, "getpid": 0, "clone3": syscall.EINVAL, "a capability": syscall.EACCES,
		"status: ": syscall.EACCES,
	}
	for _, name := range []string{
		"ptrace", "process_vm_readv", "pidfd_getfd", "mount", "fsopen", "open_tree", "chroot", "setns", "unshare", "clone into new", "kexec_load",
		"bpf", "keyctl", "add_key", "request_key", "io_uring_setup", "shmget", "open_by_handle_at", "execve", "execveat", "input", "input, more bits",
	} {
		want[name] = syscall.EPERM
	}
	out.want(t, want)
}

// Threads that were there before, that come and go meanwhile and that are made later are
// confined alike.
func TestThreads(t *testing.T) {
	want := map[string]syscall.Errno{}
	for _, kind := range []string{"before", "after"} {
		for what, word := range map[string]string{
			"in": "ok", "out": "permission denied", "socket": "permission denied", "run": "operation not permitted", "ptrace": "operation not permitted",
		} {
			want[fmt.Sprintf("%s %s: %s x%d", kind, what, word, threads)] = 0
		}
	}
	for range 3 {
		run(t, command(t, "threads", tree(t))).want(t, want)
	}
}

func TestSignalsToHelpers(t *testing.T) {
	run(t, command(t, "signals", tree(t))).want(t, map[string]syscall.Errno{"signal": 0, "ended: signal: terminated": 0})
}

func TestScopes(t *testing.T) {
	cmd := command(t, "scoped", tree(t))
	name := fmt.Sprintf("@tine-test-%d", os.Getpid())
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(l)
	if err := unix.Bind(l, &unix.SockaddrUnix{Name: name}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(l, 1); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "ABSTRACT="+name)
	out := run(t, cmd)
	signal := syscall.EPERM
	if !look().signals {
		signal = 0
	}
	out.want(t, map[string]syscall.Errno{"signal": signal, "signal to itself": 0, "abstract": since(out, abiScopes, syscall.EPERM)})
}
