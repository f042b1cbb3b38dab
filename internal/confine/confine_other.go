//go:build !linux

package confine

import "runtime"

func apply(Rules) (Report, error) { return Report{}, ErrUnsupported }

func can(Rules) Report {
	return Report{Missing: []string{"anything, since " + runtime.GOOS + " has neither Landlock nor seccomp"}}
}
