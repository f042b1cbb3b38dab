package drivertest

import (
	"bytes"
	"os"
	"path/filepath"
)

// HostRunning counts the processes of the machine that have a text among their arguments.
func HostRunning(text string) int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	n := 0
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(text)) {
			n++
		}
	}
	return n
}
