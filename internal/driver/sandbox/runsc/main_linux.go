//go:build linux && (amd64 || arm64) && !nogvisor

package runsc

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli/maincli"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// restoreGC makes a restore quicker: a sandbox begins with much that stays.
const restoreGC = 800

// Main does what the binary was started for, and exits, where that is gVisor's
// work; else it returns. It must come first in main.
func Main() {
	if !strings.HasPrefix(filepath.Base(os.Args[0]), Name) && os.Args[0] != "/proc/self/exe" {
		return
	}
	if len(os.Args) == 2 && os.Args[1] == control.Arg {
		if err := help(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == control.ListenArg {
		if err := listenAgain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == idmapArg {
		waitForNothing()
	}
	if os.Args[0] == Name { // who makes a sandbox, which has no part in the lock
		unix.CloseOnExec(control.Lock)
	}
	if slices.Contains(os.Args, "boot") {
		knowFilter(gvisorVersion())
	}
	debug.SetGCPercent(restoreGC)
	maincli.Main()
	os.Exit(0)
}
