package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/driver/folder"
)

// Kinds of what an orchestrator makes.
const (
	kindInstance = "instance"
	kindSnapshot = "snapshot"
)

// An entry of the ledger is something that an orchestrator has made for us, or
// may have:
//
//	intent (no ID) --answered--> made (ID) --removed--> no entry
//	      \--refused--> no entry
//
// The intent is on the disk before the request is sent, and the entry goes after
// the thing has. So what a gateway leaves that is killed in between is either in
// the ledger by its name, or as a request that can be sent once more, with the
// same key, to learn the name.
type entry struct {
	Key  string    `json:"key"` // also that of the request
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`

	// Whose it is: an instance has the folder of its handle, or of the state that
	// it is; a snapshot, and an instance that is kept frozen, has neither.
	Dir     string `json:"dir,omitempty"`
	State   string `json:"state,omitempty"`
	Session string `json:"session,omitempty"`

	Access access `json:"access"`

	// The request: a path below the orchestrator's URL, or a tool, and what is
	// sent there.
	Path string          `json:"path"`
	Of   string          `json:"of,omitempty"` // the instance or snapshot that it is made of
	Body json.RawMessage `json:"body"`

	// The answer. A token is written nowhere else.
	ID       string `json:"id,omitempty"`
	Instance string `json:"instance,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Token    string `json:"token,omitempty"`
	// More are the instances that were not asked for.
	More []string `json:"more,omitempty"`

	// Left is since when it has no owner, and Asked how often a lost answer was
	// asked for again.
	Left  time.Time `json:"left,omitzero"`
	Asked int       `json:"asked,omitempty"`
}

// A ledger is a folder with a file an entry.
type ledger struct{ dir string }

const ledgerSuffix = ".json"

func (l ledger) path(key string) string { return filepath.Join(l.dir, key+ledgerSuffix) }

// put writes an entry. It is on the disk when put returns.
func (l ledger) put(e *entry) error {
	b, err := json.Marshal(e)
	if err == nil {
		err = os.MkdirAll(l.dir, 0o700)
	}
	if err == nil {
		err = folder.WriteSynced(l.path(e.Key), b)
	}
	if err != nil {
		return fmt.Errorf("write down what the orchestrator is asked for: %w", err)
	}
	return nil
}

// get reads an entry; nil when there is none.
func (l ledger) get(key string) (*entry, error) {
	if key == "" || key != filepath.Base(key) {
		return nil, nil
	}
	b, err := os.ReadFile(l.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what the orchestrator was asked for: %w", err)
	}
	var e entry
	if err := json.Unmarshal(b, &e); err != nil || e.Key != key {
		return nil, fmt.Errorf("the file %s can't be read (%v); it says what an orchestrator was asked for, which may be left there", l.path(key), err)
	}
	if err := e.Access.complete(); err != nil {
		return nil, fmt.Errorf("the file %s: %w", l.path(key), err)
	}
	return &e, nil
}

// drop removes an entry. Twice is fine.
func (l ledger) drop(key string) error {
	if err := os.Remove(l.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("strike out what the orchestrator has removed: %w", err)
	}
	return nil
}

// all reads every entry. What can't be read is returned besides.
func (l ledger) all() (list []*entry, bad []error, err error) {
	files, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read what orchestrators were asked for: %w", err)
	}
	for _, f := range files {
		key, ok := strings.CutSuffix(f.Name(), ledgerSuffix)
		if !ok { // a file that was being written: what it was for was not asked yet
			os.Remove(filepath.Join(l.dir, f.Name()))
			continue
		}
		e, err := l.get(key)
		switch {
		case err != nil:
			bad = append(bad, err)
		case e != nil:
			list = append(list, e)
		}
	}
	return list, bad, nil
}
