//go:build !linux

package main

import "runtime"

// linkage says how this program is linked, and whether it needs more than every
// such system has.
func linkage() (string, bool) {
	return "linked with the libraries that every " + runtime.GOOS + " has", true
}
