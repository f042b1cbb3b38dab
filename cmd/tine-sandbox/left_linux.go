//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"gvisor.dev/gvisor/runsc/config"
)

// removeLeft removes a sandbox that gVisor knows nothing of, or nothing that can be
// read: the process that made or changed it was killed meanwhile.
func removeLeft(conf *config.Config, name string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && isOf(pid, name) {
			end(pid, name)
		}
	}
	var errs []error
	// What gVisor calls its files begins with the name, but for its socket; cgroups
	// are called like it in every hierarchy.
	for _, pattern := range []string{filepath.Join(conf.RootDir, name+"*"), filepath.Join(conf.RootDir, "runsc-"+name+".sock"), "/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		found, _ := filepath.Glob(pattern) // our own patterns
		for _, path := range found {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
