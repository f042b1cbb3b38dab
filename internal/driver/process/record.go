package process

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	recordName = "process.json"
	recordPart = "process.json.part"
)

// record is what is known about a child: in its folder for the sweep, in its
// handle for the adoption. Before the child exists only the token is set.
type record struct {
	Token   string `json:"token"`
	PID     int    `json:"pid,omitempty"`   // also its process group and session
	Start   uint64 `json:"start,omitempty"` // when it started, in the unit of the system: a pid alone may be another's by now
	Boot    string `json:"boot,omitempty"`  // pids and start times begin anew with it
	GraceMS int64  `json:"grace_ms,omitempty"`
}

func newRecord(grace, fallback time.Duration) record {
	if grace <= 0 {
		grace = fallback
	}
	return record{Token: rand.Text(), GraceMS: grace.Milliseconds()}
}

func (r record) grace() time.Duration { return time.Duration(r.GraceMS) * time.Millisecond }

// data is the record as JSON.
func (r record) data() json.RawMessage {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// write puts the record into dir, whole or not at all. It need not survive a
// power cut: neither does the child.
func (r record) write(dir string) error {
	part := filepath.Join(dir, recordPart)
	if err := os.WriteFile(part, r.data(), 0o600); err != nil {
		return fmt.Errorf("write the record of the process: %w", err)
	}
	if err := os.Rename(part, filepath.Join(dir, recordName)); err != nil {
		return fmt.Errorf("write the record of the process: %w", err)
	}
	return nil
}

func readRecord(dir string) (record, error) {
	b, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return record{}, err
	}
	return parseRecord(b)
}

func parseRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("read the record of the process: %w", err)
	}
	if r.Token == "" {
		return record{}, errors.New("read the record of the process: it has no token")
	}
	return r, nil
}

// removeFolder removes the folder of an instance, the record last: what is left
// when we are killed meanwhile is still known as ours.
func removeFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() == recordName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}
