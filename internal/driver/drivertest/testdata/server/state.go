package main

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
)

// stateVar names the directory of what the server remembers: a file a key. It is
// drivertest.StateVar, which a program this small does without.
const stateVar = "DRIVERTEST_STATE"

func remember(key, value string) string {
	path := filepath.Join(os.Getenv(stateVar), url.PathEscape(key))
	err := os.WriteFile(path+".part", []byte(value), 0o600)
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// recall returns what is remembered after a "+".
func recall(key string) string {
	b, err := os.ReadFile(filepath.Join(os.Getenv(stateVar), url.PathEscape(key)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return err.Error()
	}
	return "+" + string(b)
}
