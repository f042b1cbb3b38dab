package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/tine-mcp/tine/internal/confine"
	"github.com/tine-mcp/tine/internal/driver"
)

// checkConfine says whether tine rlm can be confined on this machine, and how far.
func checkConfine(can confine.Report) driver.Finding {
	const name = "confine"
	var with []string
	if can.Files {
		with = append(with, fmt.Sprintf("Landlock ABI %d", can.ABI))
	}
	if can.Calls {
		with = append(with, "a filter of system calls")
	}
	missing := ""
	if len(can.Missing) > 0 {
		missing = "; not refused: " + strings.Join(can.Missing, ", ")
	}
	switch {
	case can.Complete():
		return driver.Found(name, driver.FoundOK, "tine rlm can be confined, by "+strings.Join(with, " and ")+missing, "")
	case runtime.GOOS != "linux":
		return driver.Found(name, driver.FoundMissing, "tine rlm can't be confined"+missing, "run it on Linux; its kernel is in a container or a sandbox all the same")
	case len(with) == 0:
		return driver.Found(name, driver.FoundWarn, "tine rlm can't be confined"+missing, confineMend)
	}
	return driver.Found(name, driver.FoundWarn, "tine rlm can be confined in part, by "+strings.Join(with, " and ")+missing, confineMend)
}

const confineMend = "use Linux 5.13 or newer with landlock in lsm= of its command line, on amd64 or arm64, and a container engine whose filter lets both be; the kernel of tine rlm is in a sandbox all the same"
