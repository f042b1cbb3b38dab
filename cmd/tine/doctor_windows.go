package main

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// doubtfulFilesystem names the filesystem of a folder and why state should not
// be on it; empty where it may.
func doubtfulFilesystem(dir string) (kind, why string) {
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return "", ""
	}
	switch windows.GetDriveType(root) {
	case windows.DRIVE_REMOTE:
		return "a network drive", "locks are not reliable over a network"
	case windows.DRIVE_RAMDISK:
		return "a RAM disk", "what it holds is gone after a reboot"
	}
	return "", ""
}

// addressInUse knows Windows' own number, which is not syscall.EADDRINUSE.
func addressInUse(err error) bool { return errors.Is(err, windows.WSAEADDRINUSE) }
