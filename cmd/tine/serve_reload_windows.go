package main

import "os"

// notifyReload does nothing: Windows has no signal to ask for a reload with.
// The file is watched all the same.
func notifyReload(chan<- os.Signal) (stop func()) { return func() {} }
