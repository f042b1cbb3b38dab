package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func read(a arguments) (string, error) {
	// A FIFO must not make the attempt wait.
	fd, err := unix.Open(a["path"], unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	b := make([]byte, 64<<10)
	n, err := unix.Pread(fd, b, a.number("at"))
	if err == unix.ESPIPE {
		n, err = unix.Read(fd, b)
	}
	return string(b[:max(n, 0)]), err
}

// keep opens a file and does not close it.
func keep(a arguments) (string, error) {
	_, err := unix.Open(a["path"], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return "", err
}

func write(a arguments) (string, error) {
	flags := unix.O_WRONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	if a["create"] != "" {
		flags |= unix.O_CREAT
	}
	if a["append"] != "" {
		flags |= unix.O_APPEND
	}
	fd, err := unix.Open(a["path"], flags, 0o666)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(a["text"]))
	return "", err
}

func list(a arguments) (string, error) {
	entries, err := os.ReadDir(a["path"])
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " "), err
}

func stat(a arguments) (string, error) {
	var s unix.Stat_t
	err := unix.Lstat(a["path"], &s)
	return fmt.Sprintf("mode %o uid %d gid %d size %d rdev %d", s.Mode, s.Uid, s.Gid, s.Size, s.Rdev), err
}

func link(a arguments) (string, error) {
	return "", unix.Linkat(unix.AT_FDCWD, a["from"], unix.AT_FDCWD, a["to"], int(a.number("flags")))
}

func symlink(a arguments) (string, error)  { return "", unix.Symlink(a["from"], a["to"]) }
func rename(a arguments) (string, error)   { return "", unix.Rename(a["from"], a["to"]) }
func truncate(a arguments) (string, error) { return "", unix.Truncate(a["path"], a.number("size")) }
func readlink(a arguments) (string, error) { return os.Readlink(a["path"]) }

func unlink(a arguments) (string, error) {
	return "", unix.Unlinkat(unix.AT_FDCWD, a["path"], int(a.number("flags")))
}

func mkdir(a arguments) (string, error) { return "", unix.Mkdir(a["path"], 0o755) }

func chmod(a arguments) (string, error) { return "", unix.Chmod(a["path"], uint32(a.number("mode"))) }

func chown(a arguments) (string, error) {
	return "", unix.Lchown(a["path"], int(a.number("uid")), int(a.number("gid")))
}

func utimes(a arguments) (string, error) {
	return "", os.Chtimes(a["path"], time.Unix(1, 0), time.Unix(1, 0))
}

func setxattr(a arguments) (string, error) {
	return "", unix.Setxattr(a["path"], a["name"], []byte(a["text"]), 0)
}

// mmapWrite writes to a file through memory that is shared with it.
func mmapWrite(a arguments) (string, error) {
	f, err := os.OpenFile(a["path"], os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, len(a["text"]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return "", err
	}
	copy(b, a["text"])
	if err := unix.Msync(b, unix.MS_SYNC); err != nil {
		return "", err
	}
	return "", unix.Munmap(b)
}

func mknod(a arguments) (string, error) {
	return "", unix.Mknod(a["path"], uint32(a.number("mode")), int(unix.Mkdev(uint32(a.number("major")), uint32(a.number("minor")))))
}

// find lists the files whose content has a text, of those that are small.
func find(a arguments) (string, error) {
	var found []string
	skip := strings.Fields(a["skip"])
	err := filepath.WalkDir(a["path"], func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && slices.Contains(skip, path) {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > 4<<10 {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), a["text"]) {
			found = append(found, path)
		}
		return nil
	})
	return strings.Join(found, " "), err
}

// handle opens a file by a handle, which no mount and no mode stands before.
func handle(a arguments) (string, error) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, a["path"], 0)
	if err != nil {
		return "", err
	}
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	fd, err := unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(os.NewFile(uintptr(fd), a["path"]))
	return string(b), err
}

// deep makes directories in one another, until their path is longer than any may
// be, with a file in the last.
func deep(a arguments) (string, error) {
	fd, err := unix.Open(a["path"], unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	name := strings.Repeat("d", 200)
	for range a.number("count") {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			return "", err
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if err != nil {
			return "", err
		}
		fd = next
	}
	file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0o644)
	unix.Close(fd)
	if err == nil {
		unix.Close(file)
	}
	return "", err
}

// drip makes many small files.
func drip(a arguments) (string, error) {
	for i := range a.number("count") {
		if err := os.WriteFile(fmt.Sprint(a["path"], "/", i), nil, 0o644); err != nil {
			return fmt.Sprint(i), err
		}
	}
	return fmt.Sprint(a.number("count")), nil
}
