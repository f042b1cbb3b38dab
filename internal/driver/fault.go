package driver

import (
	"errors"
	"slices"
	"syscall"
)

// HostFault reports whether an error is of the machine that the gateway runs on, such as
// a full disk, and so is neither of a tool nor of who called it.
func HostFault(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EMFILE, syscall.ENFILE}, func(fault error) bool {
		return errors.Is(err, fault)
	})
}
