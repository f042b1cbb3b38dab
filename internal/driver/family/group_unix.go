//go:build linux || darwin

package family

import (
	"fmt"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/procid"
)

// reapGroup waits for the dead of a group that are our children: where the
// gateway is the init of a container, orphans become its own.
func reapGroup(pgid int) {
	for {
		pid, err := syscall.Wait4(-pgid, nil, syscall.WNOHANG, nil)
		if err != nil && err != syscall.EINTR || err == nil && pid == 0 {
			return
		}
	}
}

// EndGroup waits for the end of the group of a leader that is gone, and kills it at the
// time that until returns, which may change meanwhile.
func EndGroup(pgid int, until func() time.Time) error {
	pause := time.Millisecond
	var killed time.Time
	for {
		if !procid.GroupLives(pgid) {
			reapGroup(pgid)
			return nil
		}
		now := time.Now()
		if !now.Before(until()) {
			syscall.Kill(-pgid, syscall.SIGKILL)
			if killed.IsZero() {
				killed = now
			} else if now.Sub(killed) > KillWait/2 {
				return fmt.Errorf("process group %d was killed and does not end", pgid)
			}
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}
