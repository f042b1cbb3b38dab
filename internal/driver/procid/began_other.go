//go:build !linux

package procid

import (
	"runtime"
	"time"
)

// Began is when the process started, as far as that can be told; zero otherwise.
func (id ID) Began() time.Time {
	if runtime.GOOS == "darwin" && id.Start > 0 {
		return time.UnixMicro(int64(id.Start)).UTC()
	}
	return time.Time{}
}
