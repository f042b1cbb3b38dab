package packages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/driver/folder"
)

const (
	recordFile   = "tine-packages.json"
	recordFormat = 2
	firstFormat  = 1 // which was seen inside where it is outside
	pythonDir    = "python"
	partEnd      = ".part"
	maxRecord    = 8 << 20
)

// record says what is in a folder, and by being there that it is whole: it is
// the last file that is written.
type record struct {
	Format  int
	Kind    Kind
	Wish    []string // masked
	Name    string
	Version string
	Made    time.Time
	Bytes   int64
	Files   int

	Sum      string // what is in it, in one word; of the first format there is none
	LockFile string // in the folder
	LockSum  string

	Interpreter string            // a real path, outside
	Reads       []string          // what must be seen of it
	Bins        map[string]string // programs, by name, as paths in the folder
	Default     string            // the program that is meant where none is named

	dir string
}

// errStale is a folder that is whole but can't be used any more.
var errStale = errors.New("the interpreter is gone")

func (s *Store) folder(key string, n int) string {
	return filepath.Join(s.dir, key+"-"+strconv.Itoa(n))
}

// numbers are the folders of a key, the newest first.
func (s *Store) numbers(key string) []int {
	entries, _ := os.ReadDir(s.dir)
	var all []int
	for _, e := range entries {
		if k, n, ok := splitFolder(e.Name()); ok && k == key {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

func splitFolder(name string) (key string, n int, ok bool) {
	key, number, ok := strings.Cut(name, "-")
	n, err := strconv.Atoi(number)
	return key, n, ok && err == nil && n > 0 && strconv.Itoa(n) == number && len(key) == 20
}

// newest is the newest folder of a key that is whole.
func (s *Store) newest(key string) (*record, bool) {
	for _, n := range s.numbers(key) {
		rec, err := readRecord(s.folder(key, n))
		if err == nil {
			return rec, true
		}
		s.opts.Log.Warn("packages that are not whole are passed over", "dir", s.folder(key, n), "error", err)
	}
	return nil, false
}

// readRecord reads the record of a folder and holds its lock against it.
func readRecord(dir string) (*record, error) {
	b, err := readFile(filepath.Join(dir, recordFile), maxRecord)
	if err != nil {
		return nil, err
	}
	rec := &record{dir: dir}
	if err := json.Unmarshal(b, rec); err != nil {
		return nil, fmt.Errorf("read %s: %w", recordFile, err)
	}
	if rec.Format != recordFormat && rec.Format != firstFormat || rec.Kind != NPM && rec.Kind != Python || !filepath.IsLocal(rec.LockFile) || (rec.Format == firstFormat) != (rec.Sum == "") || strings.ContainsAny(rec.Sum, "/.") {
		return nil, fmt.Errorf("%s is of another format", recordFile)
	}
	sum, err := sumFile(filepath.Join(dir, rec.LockFile))
	if err != nil {
		return nil, err
	}
	if sum != rec.LockSum {
		return nil, fmt.Errorf("%s is not what was fetched", rec.LockFile)
	}
	return rec, nil
}

func (r *record) write(dir string) error {
	r.Format = recordFormat
	var err error
	if r.LockSum, err = sumFile(filepath.Join(dir, r.LockFile)); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return folder.WriteSynced(filepath.Join(dir, recordFile), append(b, '\n'))
}

const maxLock = 64 << 20

func sumFile(name string) (string, error) {
	b, err := readFile(name, maxLock)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// readFile reads a regular file that is not larger than it may be.
func readFile(name string, limit int64) ([]byte, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, st.Size(), limit)
	}
	return os.ReadFile(name)
}
