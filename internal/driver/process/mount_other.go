//go:build !linux

package process

import (
	"errors"
	"syscall"
)

// namespaces is what a child has of its own; here nothing.
type namespaces int

// Main returns: there are no mounts here.
func Main() {}

func (m *mount) through(path string, argv []string, _ *syscall.ProcAttr) (string, []string) {
	return path, argv
}

func writable(string) error { return nil }

func probe(string) (namespaces, error) {
	return 0, errors.New("this system has no mount namespaces")
}
