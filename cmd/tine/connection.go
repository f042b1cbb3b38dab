package main

import (
	"fmt"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// moreFiles says how to let a process open more files. The soft limit needs no advice:
// Go raises it to the hard one, and gives started programs their own back.
const moreFiles = "raise the hard limit: ulimit -Hn as root, LimitNOFILE= in a systemd unit, --ulimit nofile= of a container"

// connections is how many clients may be connected at once with a limit of open files.
// Half of the files are left to servers, sessions and the database: a crowd that took
// all would stop those too. The warning is empty if the config's number holds.
func connections(want, files int) (n int, warning string) {
	n = min(want, max(1, files/2))
	if n < want {
		warning = fmt.Sprintf("this process may have %d files open, so only %d clients can be connected at once, instead of limits.connections (%d)", files, n, want)
	}
	return n, warning
}

// checkFiles checks whether there is room for as many clients as the config allows.
func checkFiles(conf *config.Config, files int) driver.Finding {
	const name = "files"
	if conf == nil {
		conf = config.Default()
	}
	if _, warning := connections(conf.Limits.Connections, files); warning != "" {
		return driver.Found(name, driver.FoundWarn, warning, moreFiles)
	}
	return driver.Found(name, driver.FoundOK, fmt.Sprintf("%d may be open at once", files), "")
}
