//go:build !linux || !(amd64 || arm64)

package sandbox

import "context"

// Probe says what of sandboxes works here.
func Probe(context.Context, Options) []Step {
	return []Step{{Name: "system", Needed: true, Detail: errSystem.Error(), Mend: "run Tine on Linux, or use driver: docker"}}
}
