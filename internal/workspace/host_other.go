//go:build !linux && !darwin

package workspace

import (
	"io/fs"
	"os"
	"time"
)

const openNonblock = 0

func hostTimes(st fs.FileInfo) (created, accessed time.Time) { return st.ModTime(), st.ModTime() }

func born(*os.Root, string) (time.Time, bool) { return time.Time{}, false }

func (f *folder) renameNew(from, to spot[*os.Root]) error { return f.renameChecked(from, to) }
