//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

// gVisor compiles the filter of a sandbox's own system calls when its program
// starts or goes on, which takes a third of a restore, unless the filter is there
// already. Its own build puts filters in, a build as a Go module has none: so ours
// is beside this file. TestFilter writes it.

// compiled is a filter and the gVisor that compiled it.
type compiled struct {
	GVisor  string
	Program precompiledseccomp.Program
}

// precompiled are the filters that gVisor knows, by the options that they are for.
//
//go:linkname precompiled gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiled map[string]precompiledseccomp.Program

// knowFilter makes the filter known in a process that becomes a sandbox. Where it is
// of another version, gVisor compiles its own.
func knowFilter(version string) {
	var c compiled
	if len(compiledFilter) == 0 || json.Unmarshal(compiledFilter, &c) != nil || c.GVisor != version {
		return
	}
	filter.ListPrecompiled() // makes the map
	if precompiled != nil {
		precompiled[c.Program.Name] = c.Program
	}
}
