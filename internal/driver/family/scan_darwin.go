package family

import (
	"bytes"
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/procid"
)

// scan looks at every process of this user once and reports the tokens that it
// belongs to. We are never among them.
func scan(found func(p Member)) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.uid", os.Getuid())
	if err != nil {
		return
	}
	for i := range all {
		pid := int(all[i].Proc.P_pid)
		if pid == os.Getpid() {
			continue
		}
		// The number of arguments, the program, padding, the arguments and then
		// the environment, each ended by a zero byte.
		b, err := unix.SysctlRaw("kern.procargs2", pid)
		if err != nil || len(b) < 4 {
			continue
		}
		args := int(binary.NativeEndian.Uint32(b))
		b = b[4:]
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = bytes.TrimLeft(b[i:], "\x00")
		}
		for ; args > 0; args-- {
			i := bytes.IndexByte(b, 0)
			if i < 0 {
				break
			}
			b = b[i+1:]
		}
		tokens := markerIn(b)
		if len(tokens) == 0 {
			continue
		}
		if s, err := procid.Look(pid); err == nil && !s.Dead {
			found(Member{ID: s.ID, Tokens: tokens})
		}
	}
}
