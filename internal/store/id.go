package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// idName is a file of the state folder with the id of its gateway, so that objects
// labelled with it elsewhere are recognized without a database.
const idName = "id"

// ReadID returns the id in a state folder, empty where there is none.
func ReadID(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, idName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the gateway's id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// WriteID writes the id of a state folder. It appears whole or not at all.
func WriteID(dir, id string) error {
	path := filepath.Join(dir, idName)
	f, err := os.OpenFile(path+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.WriteString(id + "\n")
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		return fmt.Errorf("write the gateway's id: %w", err)
	}
	return nil
}
