package dirs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// madeName is the list of the directories that a state must have: those that existed
// when it was made, when an instance began with it, and when one ended. What is missing
// while nothing runs was not removed by the server. No directory of a state has this
// name.
const madeName = ".made"

// Note writes the list of a state anew, with the declared directories that are there
// in the folder.
func Note(state, in string, declared []driver.StateDir) error {
	var there []string
	for _, dir := range declared {
		if _, err := os.Lstat(filepath.Join(in, dir.Name)); err == nil {
			there = append(there, dir.Name)
		}
	}
	slices.Sort(there)
	text := strings.Join(there, "\n")
	if was, err := os.ReadFile(filepath.Join(state, madeName)); err == nil && string(was) == text {
		return nil
	}
	return folder.Write(filepath.Join(state, madeName), []byte(text))
}

// Vanished names a declared directory that must be there and is not, or the state
// itself; empty where all is there. A state of an earlier version has no list.
func Vanished(state, in string, declared []driver.StateDir) (string, error) {
	if len(declared) == 0 || state == "" {
		return "", nil
	}
	if _, err := os.Lstat(state); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "its state " + state, nil
		}
		return "", err
	}
	list, err := os.ReadFile(filepath.Join(state, madeName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	made := strings.Split(string(list), "\n")
	for _, dir := range declared {
		at := filepath.Join(in, dir.Name)
		if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) && slices.Contains(made, dir.Name) {
			return "the directory " + at + " of its state", nil
		}
	}
	return "", nil
}
