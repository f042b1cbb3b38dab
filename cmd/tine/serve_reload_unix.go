//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyReload sends to c when the operator asks for the config to be read
// again.
func notifyReload(c chan<- os.Signal) (stop func()) {
	signal.Notify(c, syscall.SIGHUP)
	return func() { signal.Reset(syscall.SIGHUP) }
}
