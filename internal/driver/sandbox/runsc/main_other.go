//go:build !linux || !(amd64 || arm64) || nogvisor

package runsc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Main returns, unless the binary was started to be a sandbox: there is no gVisor
// in it, because there is none for this system or it was built with the tag
// nogvisor.
func Main() {
	if strings.HasPrefix(filepath.Base(os.Args[0]), Name) {
		fmt.Fprintln(os.Stderr, "this binary was built without gVisor")
		os.Exit(1)
	}
}
