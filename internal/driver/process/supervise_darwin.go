package process

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// supervises is whether this program can watch over a command: here the orphans of a
// command can't be made its children.
const supervises = false

func (d *Driver) startWatched(*commandSpec, []*os.File) (running, error) {
	return nil, errors.New("commands are not watched over here")
}

// signalName is what a signal is called, without SIG.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); len(name) > 3 {
		return name[3:]
	}
	return strconv.Itoa(int(sig))
}
