// Package family finds and ends all processes that one start has led to, wherever they
// have gone, also after a restart of the gateway.
//
// A program gets a random token in its environment, which every descendant inherits. A
// process that has cleared its environment is known by the files of the program's folder
// that it has open as its standard input or output. What is in the program's process
// group is ended with the group, which needs no search. A process that leaves the group,
// clears its environment and closes the files can't be found.
//
// Systems where programs end with the gateway have only the environment.
package family

import (
	"path/filepath"
	"time"
)

// Files of a program's folder by which its processes are found, besides those of
// the packages fifo and lines.
const (
	Stdin  = "stdin"
	Stdout = "stdout"
)

// KillWait is how long what was killed may take to be gone. Only a process that
// hangs in the kernel takes that long.
const KillWait = 10 * time.Second

// RealPath is the path as the kernel tells it.
func RealPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}
