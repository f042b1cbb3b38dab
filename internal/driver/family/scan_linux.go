package family

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// scan looks at every process once and reports the tokens and folders that it
// belongs to. We are never among them.
func scan(found func(p Member)) {
	self := os.Getpid()
	env := make([]byte, 16<<10)
	for _, pid := range procid.All() {
		if pid == self {
			continue
		}
		proc := "/proc/" + strconv.Itoa(pid)
		var p Member
		env, p.Tokens = waitMarker(pid, env)
		// One that cleared its environment may still have our files.
		for _, fd := range []string{"/fd/0", "/fd/1", "/fd/2"} {
			target, err := os.Readlink(proc + fd)
			if err != nil {
				break
			}
			target = strings.TrimSuffix(target, " (deleted)")
			switch filepath.Base(target) {
			case fifo.In, fifo.Out, Stdin, Stdout, lines.LogName, lines.LogOld:
				p.Dirs = append(p.Dirs, filepath.Dir(target))
			}
		}
		if len(p.Tokens)+len(p.Dirs) == 0 {
			continue
		}
		s, err := procid.Look(pid)
		if err != nil || s.Dead {
			continue
		}
		p.ID = s.ID
		found(p)
	}
}

// waitMarker returns the tokens in the environment of a process, and the buffer,
// grown where it had to be. In the middle of an exec a process has left the old
// environment and not got the new one; it would slip through if we did not wait
// for the moment to pass.
func waitMarker(pid int, buf []byte) ([]byte, []string) {
	path := "/proc/" + strconv.Itoa(pid) + "/environ"
	for giveUp := time.Now().Add(time.Second); ; time.Sleep(100 * time.Microsecond) {
		var n int
		var err error
		buf, n, err = readInto(path, buf)
		if err != nil {
			return buf, nil
		}
		if n > 0 || time.Now().After(giveUp) {
			return buf, markerIn(buf[:n])
		}
		if s, err := procid.Look(pid); err != nil || !s.Young {
			// It may have come of age between the two looks.
			buf, n, _ = readInto(path, buf)
			return buf, markerIn(buf[:n])
		}
	}
}

// readInto reads a file into the buffer, which it returns grown where it had to
// be.
func readInto(path string, buf []byte) ([]byte, int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return buf, 0, err
	}
	defer unix.Close(fd)
	n := 0
	for {
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return buf, 0, err
		}
		if m <= 0 {
			return buf, n, nil
		}
		n += m
	}
}
