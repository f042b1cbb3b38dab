//go:build !linux

package sqlite

func resident() int64 { return 0 }
