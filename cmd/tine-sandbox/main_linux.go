//go:build linux && (amd64 || arm64)

// Command tine-sandbox makes the sandboxes of tine: it is gVisor, and the helper
// through which the driver makes, freezes and ends them. It is a program of its
// own so that tine itself is built, started and loaded without gVisor.
package main

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

// runsc is what this binary is called where it is gVisor: a copy of it in the
// state folder is runsc-HASH.
const runsc = "runsc"

// version is set by the linker.
var version = "dev"

func main() {
	if !strings.HasPrefix(filepath.Base(os.Args[0]), runsc) && os.Args[0] != "/proc/self/exe" {
		fmt.Printf("tine-sandbox %s, with gVisor %s, protocol %d\n\nIt makes the sandboxes of tine, which finds it beside itself, on PATH, or where sandbox_binary in its config says.\n",
			version, gvisorVersion(), control.Protocol)
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
	if os.Args[0] == runsc { // the process that makes a sandbox, which has no part in the lock
		unix.CloseOnExec(control.Lock)
	}
	if slices.Contains(os.Args, "boot") {
		knowFilter(gvisorVersion())
	}
	debug.SetGCPercent(restoreGC)
	maincli.Main()
}
