package procid

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is the unit of start times in a second, which is the same on all of Linux.
const ticks = 100

// Began is when the process started, as far as that can be told; zero otherwise.
func (id ID) Began() time.Time {
	raw, err := os.ReadFile("/proc/uptime")
	if err != nil || id.Start == 0 {
		return time.Time{}
	}
	text, _, _ := strings.Cut(string(raw), " ")
	up, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.Time{}
	}
	boot := time.Now().Add(-time.Duration(up * float64(time.Second)))
	return boot.Add(time.Duration(id.Start) * time.Second / ticks).UTC().Round(100 * time.Millisecond)
}
