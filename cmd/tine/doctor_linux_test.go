package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestDoubtfulFilesystem(t *testing.T) {
	for magic, want := range map[uint32]string{
		unix.TMPFS_MAGIC: "tmpfs", unix.NFS_SUPER_MAGIC: "NFS", unix.CIFS_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB",
		unix.EXT4_SUPER_MAGIC: "", unix.XFS_SUPER_MAGIC: "", unix.BTRFS_SUPER_MAGIC: "", unix.OVERLAYFS_SUPER_MAGIC: "",
	} {
		kind, why := doubtfulMagic(magic)
		if kind != want || (why == "") != (want == "") {
			t.Errorf("%#x: %q, %q; want %q", magic, kind, why, want)
		}
	}
	if kind, why := doubtfulFilesystem("/proc"); why != "" {
		t.Errorf("proc is taken for %s: %s", kind, why)
	}
}
