//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

// What is in a folder of state or of a snapshot.
const (
	stateName = "state.json"
	imageName = "image"
	dirsName  = "dirs"
)

// maxState bounds a record that is read. What is large in it is what the server
// said in its handshake.
const maxState = 8 << 20

func imageOf(dir string) string { return filepath.Join(dir, imageName) }

func dirsOf(dir string, name ...string) string {
	return filepath.Join(append([]string{dir, dirsName}, name...)...)
}

// stateRecord says what a folder of state or of a snapshot is of.
type stateRecord struct {
	Kind  string     `json:"kind"`
	Image *imageInfo `json:"image,omitempty"`
	// Hello is what the server whose memory the image is said in its handshake,
	// and Forked whether others have the same memory.
	Hello  json.RawMessage `json:"hello,omitempty"`
	Forked bool            `json:"forked,omitempty"`
	Dirs   dirs.Set        `json:"dirs,omitempty"` // of a snapshot
}

// imageInfo is what there is to know about a memory.
type imageInfo struct {
	ID      string   `json:"id"`                // of this one; its copies have the same
	Runsc   string   `json:"runsc"`             // the binary that wrote it
	GVisor  string   `json:"gvisor,omitempty"`  // and the version of gVisor in it
	Arch    string   `json:"arch"`              // of the machine
	CPU     []string `json:"cpu,omitempty"`     // what the CPU could, and programs may have begun to use
	Base    string   `json:"base,omitempty"`    // digests of what it needs of its root, and of its program; empty where it is
	Program string   `json:"program,omitempty"` // not known, as of what an earlier version made
	// Needs is what Base is the digest of, so that an error can name what changed. It
	// stays on this machine.
	Needs  map[string]string `json:"needs,omitempty"`
	Unread []byte            `json:"unread,omitempty"` // what the program was sent and has not read
	Torn   bool              `json:"torn,omitempty"`   // and that ends in the middle of a line
	Size   int64             `json:"size"`             // bytes of the files
	// Sum is a checksum of the files, where the memory waits in a state for the next
	// gateway. Snapshots have theirs in a list of all that they consist of.
	Sum string `json:"sum,omitempty"`
}

// errRecord reports that a record was not written whole, as a power cut leaves it.
var errRecord = errors.New("its record is empty")

func readState(dir string) (stateRecord, error) {
	f, err := os.Open(filepath.Join(dir, stateName))
	if err != nil {
		return stateRecord{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return stateRecord{}, fmt.Errorf("read what a state is: %w", err)
	}
	var r stateRecord
	switch {
	case len(b) == 0:
		return r, fmt.Errorf("read what a state is: %w", errRecord)
	case len(b) > maxState:
		return r, fmt.Errorf("read what a state is: it has more than %d bytes", maxState)
	}
	if b, err = unsealRecord(b); err != nil {
		return r, &clone.Damage{Path: f.Name(), Offset: -1, Reason: err.Error()}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return stateRecord{}, fmt.Errorf("read what a state is: %w", err)
	}
	if r.Kind != driverName || r.Image != nil && !hashName.MatchString(r.Image.Runsc) {
		return stateRecord{}, errors.New("read what a state is: it is not one of a sandbox")
	}
	return r, r.Dirs.Check()
}

// write puts the record into dir, whole or not at all; where it must survive a
// power cut, synced. It is the last of what is written.
func (r stateRecord) write(dir string, synced bool) error {
	r.Kind = driverName
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write what a state is: %w", err)
	}
	put := folder.Write
	if synced {
		put = folder.WriteSynced
	}
	if err := put(filepath.Join(dir, stateName), sealRecord(b)); err != nil {
		return fmt.Errorf("write what a state is: %w", err)
	}
	return nil
}

// stateOf reads the state that an instance works on. An instance without one has an empty
// record.
func (d *Driver) stateOf(spec driver.Spec) (stateRecord, error) {
	if spec.State == "" {
		if len(spec.Dirs) > 0 {
			return stateRecord{}, errors.New("it declares a state, and there is no folder for it")
		}
		return stateRecord{}, nil
	}
	r, err := readState(spec.State)
	there := func(path string) bool {
		_, err := os.Lstat(path)
		return !errors.Is(err, fs.ErrNotExist)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && there(spec.State):
		return stateRecord{}, driver.Vanished(spec.Whose(), "the file "+filepath.Join(spec.State, stateName)+" of its state")
	case errors.Is(err, fs.ErrNotExist) && len(spec.Dirs) == 0:
		return stateRecord{}, nil // a server that could keep nothing when it was made has no folder
	case errors.Is(err, fs.ErrNotExist):
		return stateRecord{}, driver.Vanished(spec.Whose(), "its state "+spec.State)
	case errors.Is(err, errRecord) && there(imageOf(spec.State)):
		return stateRecord{}, driver.Vanished(spec.Whose(), "the content of "+filepath.Join(spec.State, stateName)+", which says whose memory is beside it,")
	case errors.Is(err, errRecord):
		// What was in memory is gone with the machine's; the directories are there.
		d.opts.Log.Warn("the record of a state is empty, as after a power cut; the server begins anew", "server", spec.Server, "folder", spec.State)
		return stateRecord{}, nil
	case err != nil:
		return r, err
	}
	what, err := dirs.Vanished(spec.State, dirsOf(spec.State), spec.Dirs)
	if err == nil && what != "" {
		err = driver.Vanished(spec.Whose(), what)
	}
	return r, err
}
