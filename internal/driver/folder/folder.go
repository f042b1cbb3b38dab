// Package folder is how drivers keep what they must find again after a death:
// private folders, and in each a record that is written whole or not at all.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Part ends the name of a file that is being written.
const Part = ".part"

// Make makes a private folder for an instance, which may be there already.
func Make(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the instance's folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("make the instance's folder private: %w", err)
	}
	return nil
}

// New makes a private folder that is not there.
func New(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	return os.Mkdir(dir, 0o700)
}

// Remove removes the folder of an instance, its record last: what is left when
// we are killed meanwhile is still known as ours.
func Remove(dir, record string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() == record {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// RemoveEmpty removes a folder that has nothing in it but files that a killed process
// was writing, and reports whether it did.
func RemoveEmpty(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), Part) }) {
		return false
	}
	for _, e := range entries {
		os.Remove(filepath.Join(dir, e.Name()))
	}
	return os.Remove(dir) == nil
}

// Write replaces a file, whole or not at all. Of two at once one is the last. It
// need not survive a power cut.
func Write(name string, b []byte) error { return write(name, b, false) }

// WriteSynced is Write for what must survive a power cut.
func WriteSynced(name string, b []byte) error {
	if err := write(name, b, true); err != nil {
		return err
	}
	return Sync(filepath.Dir(name))
}

func write(name string, b []byte, sync bool) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*"+Part) // readable by this user alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// Sync makes the names in a folder last, where the system can.
func Sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
