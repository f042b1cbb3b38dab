package config

import "io/fs"

// linked reports whether a file has more than one name. Sandboxes, which it matters
// to, are not there on Windows.
func linked(fs.FileInfo) bool { return false }
