//go:build linux || darwin

package workspace

import "os"

// withHandle runs do with a descriptor of the directory itself. What do is given
// must be a single element, never a path.
func withHandle(dir *os.Root, do func(fd int) error) error {
	h, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer h.Close()
	c, err := h.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := c.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}
