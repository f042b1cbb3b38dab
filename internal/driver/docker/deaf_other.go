//go:build !linux

package docker

// deaf is for engines whose processes we see.
func deaf(int) bool { return false }
