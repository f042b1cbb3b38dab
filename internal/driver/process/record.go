package process

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

const recordName = "process.json"

// record is what is known about a child: in its folder for the sweep, in its
// handle for the adoption. Before the child exists only the token is set. The pid
// is also that of its process group and session.
type record struct {
	Token string `json:"token"`
	procid.ID
	GraceMS int64 `json:"grace_ms,omitempty"`
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
	if err := folder.Write(filepath.Join(dir, recordName), r.data()); err != nil {
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
