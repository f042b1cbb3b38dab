package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// spareThreads has Go keep some threads for later. A program in Go that wants one and
// gets none ends, so an attack that takes all of them must have its own before.
func spareThreads() {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil)
		})
	}
	all.Wait()
}

// forks starts so many children that do nothing, or as many as it can, and ends
// them; with flags, in namespaces of their own. They are copies of one thread of
// it, which make system calls and no more.
func forks(a arguments) (string, error) {
	spareThreads()
	var all []int
	defer func() {
		for _, pid := range all {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}()
	for len(all) < int(a.number("count")) {
		pid, errno := idle(uintptr(unix.SIGCHLD) | uintptr(a.number("flags")))
		if errno != 0 {
			return "", fmt.Errorf("after %d: %w", len(all), errno)
		}
		all = append(all, pid)
	}
	return fmt.Sprint(len(all)), nil
}

//go:noinline
//go:norace
func idle(flags uintptr) (int, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return int(pid), errno
	}
	for {
		syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

// threads has so many threads at once.
func threads(a arguments) (string, error) {
	var here sync.WaitGroup
	all := make(chan struct{})
	for range a.number("count") {
		here.Add(1)
		go func() {
			runtime.LockOSThread()
			here.Done()
			<-all
		}()
	}
	here.Wait()
	close(all)
	return "", nil
}

// limit sets one of its own.
func limit(a arguments) (string, error) {
	n := uint64(a.number("most"))
	return "", unix.Setrlimit(int(a.number("which")), &unix.Rlimit{Cur: n, Max: n})
}

// eat takes so much memory, and keeps it.
func eat(a arguments) (string, error) {
	const piece = 8 << 20
	for had := int64(0); had < a.number("bytes"); had += piece {
		b, err := unix.Mmap(-1, 0, piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return "", fmt.Errorf("after %d: %w", had, err)
		}
		for i := 0; i < piece; i += 4096 {
			b[i] = byte(i>>12) | 1
		}
	}
	return "", nil
}

// fill writes a file of so many bytes.
func fill(a arguments) (string, error) {
	f, err := os.OpenFile(a["path"], os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return "", pour(f, a.number("bytes"))
}

// nameless writes as much to a file that has no name, and keeps it.
func nameless(a arguments) (string, error) {
	fd, err := unix.MemfdCreate("kept", 0)
	if err != nil {
		return "", err
	}
	kept = os.NewFile(uintptr(fd), "kept")
	return "", pour(kept, a.number("bytes"))
}

var kept *os.File

func pour(f *os.File, much int64) error {
	piece := bytes.Repeat([]byte("fill"), 64<<10)
	for had := int64(0); had < much; {
		n, err := f.Write(piece)
		had += int64(n)
		if err != nil {
			return fmt.Errorf("after %d: %w", had, err)
		}
	}
	return nil
}

// openMany opens a file so often, or as often as it can.
func openMany(a arguments) (string, error) {
	spareThreads()
	var all []int
	defer func() {
		for _, fd := range all {
			unix.Close(fd)
		}
	}()
	for len(all) < int(a.number("count")) {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", fmt.Errorf("after %d: %w", len(all), err)
		}
		all = append(all, fd)
	}
	return "", nil
}

// complain writes so many bytes to the standard error.
func complain(a arguments) (string, error) {
	line := []byte(strings.Repeat("complaint ", 100) + "\n")
	for had := int64(0); had < a.number("bytes"); had += int64(len(line)) {
		if _, err := os.Stderr.Write(line); err != nil {
			return "", err
		}
	}
	return "", nil
}

// babble writes so many bytes to the standard output in front of its answer, in
// lines of a length.
func babble(a arguments) (string, error) {
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	line := append(bytes.Repeat([]byte("x"), int(a.number("length"))), '\n')
	for had := int64(0); had < a.number("bytes"); had += int64(len(line)) {
		if _, err := out.Write(line); err != nil {
			return "", err
		}
	}
	return "", out.Flush()
}

// grow tries to make one of the standard files large without writing to it.
func grow(a arguments) (string, error) {
	fd, size := int(a.number("fd")), a.number("bytes")
	switch a["how"] {
	case "truncate":
		return "", unix.Ftruncate(fd, size)
	case "allocate":
		return "", unix.Fallocate(fd, 0, 0, size)
	case "chmod":
		return "", unix.Fchmod(fd, 0o777)
	case "chown":
		return "", unix.Fchown(fd, 12345, 12345)
	case "pipe":
		n, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, int(size))
		return fmt.Sprint(n), err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_RDWR); err != nil {
		return "", err
	}
	_, err := unix.Pwrite(fd, []byte("far away\n"), size)
	return "", err
}

// spin keeps so many threads busy for ever.
func spin(a arguments) (string, error) {
	for range a.number("count") {
		go func() {
			for n := 0; ; n++ {
			}
		}()
	}
	return "", nil
}
