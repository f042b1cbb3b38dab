package main

import (
	"debug/elf"
	"strings"

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

func addressInUse(error) bool { return false } // EADDRINUSE says it all
