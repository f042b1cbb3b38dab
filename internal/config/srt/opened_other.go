//go:build !linux

package srt

import "os"

// placeOf is where an open file is: where its name leads now, if that is the same file.
func placeOf(f *os.File) (string, bool) {
	at := final(f.Name())
	there, err := os.Stat(at)
	if err != nil {
		return "", false
	}
	own, err := f.Stat()
	return at, err == nil && os.SameFile(there, own)
}
