package main

import (
	"fmt"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// moreFiles says how to let a process have more files open. The soft limit needs no
// word: Go raises it to the hard one, and gives programs that it starts their own back.
const moreFiles = "raise the hard limit: ulimit -Hn as root, LimitNOFILE= in a systemd unit, --ulimit nofile= of a container"

// connections is how many clients may be connected at once where so many files may be
// open. Half of them are left to servers, sessions and the database: a crowd that took
// all would stop those too. The warning is empty where the config's number holds.
func connections(want, files int) (n int, warning string) {
	n = min(want, max(1, files/2))
	if n < want {
		warning = fmt.Sprintf("this process may have %d files open, so %d clients can be connected at once, and not %d as limits.connections says", files, n, want)
	}
	return n, warning
}

// checkFiles looks whether there is room for as many clients as the config lets in.
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
