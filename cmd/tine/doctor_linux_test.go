package main

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNoUserNamespaces(t *testing.T) {
	const (
		most     = "/proc/sys/user/max_user_namespaces"
		clone    = "/proc/sys/kernel/unprivileged_userns_clone"
		apparmor = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
	)
	for _, tt := range []struct {
		name     string
		uid      int
		settings map[string]string
		want     string
	}{
		{"a plain kernel", 1000, map[string]string{most: "1000"}, ""},
		{"no such settings", 1000, nil, ""},
		{"off", 0, map[string]string{most: "0"}, "max_user_namespaces"},
		{"for root only", 1000, map[string]string{clone: "0"}, "unprivileged_userns_clone"},
		{"for root only, as root", 0, map[string]string{clone: "0", apparmor: "1"}, ""},
		{"AppArmor", 1000, map[string]string{clone: "1", apparmor: "1"}, "AppArmor"},
	} {
		got := noUserNamespaces(tt.uid, func(p string) string { return tt.settings[p] })
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

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
