// Package runsc is gVisor in this binary: what it does when it was started as
// runsc, and as the helper that makes sandboxes for the driver. Nothing but main
// and this package has gVisor in it, so that whoever tests the driver need not
// build it.
package runsc

// Name is what the name of the binary begins with where it is gVisor.
const Name = "runsc"
