package main

import (
	"os"
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

func TestNoNamespaces(t *testing.T) {
	refuse := func(uintptr) error { return unix.EPERM }
	allow := func(uintptr) error { return nil }
	withUser := func(flags uintptr) error {
		if flags&unix.CLONE_NEWUSER == 0 {
			return unix.EPERM
		}
		return nil
	}
	withoutUser := func(flags uintptr) error {
		if flags&unix.CLONE_NEWUSER != 0 {
			return unix.ENOSPC
		}
		return nil
	}
	plain := func(string) string { return "" }
	off := func(path string) string {
		if strings.HasSuffix(path, "max_user_namespaces") {
			return "0"
		}
		return ""
	}
	for _, tt := range []struct {
		name    string
		uid     int
		try     func(uintptr) error
		setting func(string) string
		want    string
	}{
		{"a plain machine", 1000, allow, plain, ""},
		{"root", 0, allow, plain, ""},
		{"root where users may not", 0, withoutUser, off, ""},
		{"root in a container that lets users", 0, withUser, plain, ""},
		{"a user where users may not", 1000, withoutUser, off, "max_user_namespaces"},
		{"a container without privileges", 65532, refuse, plain, "container without privileges"},
		{"root in one", 0, refuse, plain, "container without privileges"},
		{"settings that only look bad", 1000, allow, off, ""},
	} {
		got := noNamespaces(tt.uid, tt.try, tt.setting)
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	// Whatever this machine allows, asking leaves no process behind and answers
	// without the path that is asked for.
	if err := tryNamespaces(isolation | unix.CLONE_NEWUSER); err != nil && strings.Contains(err.Error(), "/proc") {
		t.Error(err)
	}
	if err := tryNamespaces(0); err != nil {
		t.Errorf("without any: %v", err)
	}
}

func TestTryPipe(t *testing.T) {
	dir := t.TempDir()
	if err := tryPipe(dir); err != nil {
		t.Error(err)
	}
	if err := tryPipe("/proc"); err == nil {
		t.Error("proc takes named pipes")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
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
