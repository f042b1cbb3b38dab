package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// linkage says how this program is linked, and whether it is static.
func linkage() (string, bool) {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return "linkage unknown: " + err.Error(), true
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, min(p.Filesz, 4096))
		if _, err := p.ReadAt(name, 0); err != nil {
			return "dynamically linked", false
		}
		return "dynamically linked with " + strings.TrimRight(string(name), "\x00"), false
	}
	return "statically linked", true
}

// doubtfulFilesystem names the filesystem of a folder and why state should not
// be on it; empty where it may.
func doubtfulFilesystem(dir string) (kind, why string) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", ""
	}
	return doubtfulMagic(uint32(st.Type))
}

// doubtfulMagic is doubtfulFilesystem by the kernel's number for it.
func doubtfulMagic(magic uint32) (kind, why string) {
	const (
		network = "locks and pipes are not reliable over a network"
		memory  = "what it holds is gone after a reboot"
	)
	switch magic {
	case unix.TMPFS_MAGIC:
		return "tmpfs", memory
	case unix.RAMFS_MAGIC:
		return "ramfs", memory
	case unix.NFS_SUPER_MAGIC:
		return "NFS", network
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "SMB", network
	case unix.V9FS_MAGIC:
		return "9P", network
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph", network
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS", network
	case unix.CODA_SUPER_MAGIC:
		return "Coda", network
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE", "it may be a network filesystem, over which locks and pipes are not reliable"
	}
	return "", ""
}

func checkSandbox(left []string) check {
	if why := sandboxArch(); why != "" {
		return sandboxCheck(why, left)
	}
	if why := noNamespaces(os.Geteuid(), tryNamespaces, readSetting); why != "" {
		return sandboxCheck("it could not run here: "+why, left)
	}
	return sandboxCheck("this machine has what one will need", nil)
}

// isolation is what a sandbox keeps to itself.
const isolation = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// noNamespaces says why a sandbox could not have namespaces of its own; empty
// when it could. Settings only explain: in a container it is its engine that
// refuses, whatever they say.
func noNamespaces(uid int, try func(flags uintptr) error, setting func(string) string) string {
	if uid == 0 && try(isolation) == nil {
		return ""
	}
	err := try(isolation | unix.CLONE_NEWUSER)
	if err == nil {
		return ""
	}
	if why := noUserNamespaces(uid, setting); why != "" {
		return why
	}
	return fmt.Sprintf("new namespaces are refused (%v), as in a container without privileges", err)
}

// tryNamespaces asks the kernel for a process with namespaces of its own. What
// it is to run does not exist, so it ends before it does anything.
func tryNamespaces(flags uintptr) error {
	const none = "/proc/self/tine-doctor"
	attr := &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	_, err := os.StartProcess(none, []string{none}, &os.ProcAttr{Sys: attr})
	if errors.Is(err, syscall.ENOENT) {
		return nil // it got as far as running it
	}
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err // the path is ours and says nothing
	}
	return err
}

// noUserNamespaces says why sandboxes could not be made without being root;
// empty when they could.
func noUserNamespaces(uid int, setting func(string) string) string {
	if setting("/proc/sys/user/max_user_namespaces") == "0" {
		return "user namespaces are switched off (sysctl user.max_user_namespaces is 0)"
	}
	if uid == 0 {
		return ""
	}
	if setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
		return "user namespaces are for root only (sysctl kernel.unprivileged_userns_clone is 0)"
	}
	if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return "AppArmor restricts user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)"
	}
	return ""
}

// readSetting reads a kernel setting, empty when this kernel has no such.
func readSetting(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func addressInUse(error) bool { return false } // EADDRINUSE says it all
