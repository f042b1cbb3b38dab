//go:build linux && (amd64 || arm64)

package sandbox

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

const recordName = "sandbox.json"

// record is what is known about an instance: in its folder for the sweep, in its
// handle for the adoption. It is there before the sandbox is.
type record struct {
	Sandbox string   `json:"sandbox"` // what gVisor calls it
	Runsc   string   `json:"runsc"`   // the binary that made it
	Flags   []string `json:"flags"`   // that it was made with
	procid.ID
	Gofer   procid.ID `json:"gofer,omitzero"`
	State   string    `json:"state,omitempty"`  // the folder of what it remembers
	Memory  bool      `json:"memory,omitempty"` // and which is nothing but its memory
	Root    string    `json:"root,omitempty"`   // digests of what it was made of
	Program string    `json:"program,omitempty"`
	GraceMS int64     `json:"grace_ms,omitempty"`
	Port    int       `json:"port,omitempty"` // of a server that speaks HTTP
	Path    string    `json:"path,omitempty"`
	Domains []string  `json:"domains,omitempty"` // that it may reach
	Ordinal int       `json:"ordinal,omitempty"`
}

func newName() string { return "tine-" + strings.ToLower(rand.Text()[:20]) }

func (r record) grace() time.Duration { return time.Duration(r.GraceMS) * time.Millisecond }

func (r record) data() json.RawMessage {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// write puts the record into dir, whole or not at all. It need not survive a
// power cut: neither does the sandbox.
func (r record) write(dir string) error {
	if err := folder.Write(filepath.Join(dir, recordName), r.data()); err != nil {
		return fmt.Errorf("write the record of the sandbox: %w", err)
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
		return record{}, fmt.Errorf("read the record of the sandbox: %w", err)
	}
	if r.Sandbox == "" || !hashName.MatchString(r.Runsc) {
		return record{}, errors.New("read the record of the sandbox: it does not say which it is")
	}
	return r, nil
}
