//go:build !linux && !darwin && !windows

package config

// machineMemory is not known here.
func machineMemory() int64 { return 0 }
