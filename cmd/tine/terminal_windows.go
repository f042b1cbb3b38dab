package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// enableColor asks the console to understand escape sequences, which older ones
// do only when asked.
func enableColor(f *os.File) bool {
	h := windows.Handle(f.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(h, &mode); err != nil {
		return false
	}
	return windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
