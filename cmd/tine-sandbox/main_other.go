//go:build !linux || !(amd64 || arm64)

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "tine-sandbox: sandboxes are for Linux on amd64 and arm64")
	os.Exit(1)
}
