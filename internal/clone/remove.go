package clone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Remove removes a tree, also where its directories may not be written to, as
// package caches like to have them. What is not there is fine.
func Remove(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	st, statErr := os.Lstat(path)
	if statErr != nil || !st.IsDir() {
		return err
	}
	if chmodErr := os.Chmod(path, 0o700); chmodErr != nil {
		return err
	}
	root, openErr := os.OpenRoot(path)
	if openErr != nil {
		return err
	}
	unlockErr := unlock(root)
	root.Close()
	if err := os.RemoveAll(path); err != nil {
		return errors.Join(err, unlockErr)
	}
	return nil
}

// unlock makes every directory of a tree ours to change.
func unlock(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := root.Chmod(e.Name(), 0o700); err != nil {
			return fmt.Errorf("make a directory removable: %w", err)
		}
		sub, err := root.OpenRoot(e.Name())
		if err != nil {
			return fmt.Errorf("make a directory removable: %w", err)
		}
		err = unlock(sub)
		sub.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
