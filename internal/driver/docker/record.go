package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	recordName = "docker.json"
	recordPart = "docker.json.part"
)

// record is what is known about an instance: in its folder for the sweep, in its
// handle for the adoption. Before the container exists only its name is set.
type record struct {
	Kind      string `json:"kind"` // recordInstance
	Host      string `json:"host"`
	Name      string `json:"name"`
	Container string `json:"container,omitempty"`
	// Stays is set where the container is the state and outlives its instances.
	Stays bool `json:"stays,omitempty"`
	// Keeps is set where there is a state beside the container's memory.
	Keeps bool `json:"keeps,omitempty"`
	// Mortal is set where it ends with us: Podman closes the input of a container
	// when who was attached to it goes.
	Mortal bool `json:"mortal,omitempty"`
	// Engine tells one run of the engine from the next, where that can be told.
	Engine  string `json:"engine,omitempty"`
	GraceMS int64  `json:"grace_ms,omitempty"`

	HTTP    bool   `json:"http,omitempty"`
	Port    int    `json:"port,omitempty"`
	Path    string `json:"path,omitempty"`
	Reach   string `json:"reach,omitempty"`
	Network string `json:"network,omitempty"` // the one that it is reached by
	Ours    bool   `json:"ours,omitempty"`    // which is ours
}

const (
	recordInstance = "instance"
	recordState    = "state"
)

func (r record) grace() time.Duration { return time.Duration(r.GraceMS) * time.Millisecond }

// ref is how to name the container to the engine.
func (r record) ref() string {
	if r.Container != "" {
		return r.Container
	}
	return r.Name
}

func (r record) data() json.RawMessage {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

func parseRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("read the record of the container: %w", err)
	}
	if r.Kind != recordInstance || r.Name == "" || r.Host == "" {
		return record{}, errors.New("read the record of the container: it names none")
	}
	return r, nil
}

func readRecord(dir string) (record, error) {
	b, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return record{}, err
	}
	return parseRecord(b)
}

// holding is what a state or a snapshot consists of. Who has the file owns it.
type holding struct {
	Kind    string  `json:"kind"` // recordState
	Host    string  `json:"host"`
	Volumes []piece `json:"volumes,omitempty"`
	// Image is a tag of ours that the root is made from; empty for the image of
	// the config. Root is whether the root is kept.
	Root  bool   `json:"root,omitempty"`
	Image string `json:"image,omitempty"`
	// Container is the state itself, once something has run on it.
	Container string `json:"container,omitempty"`
	// Base is the image of the config, for containers that only hold a volume
	// while something is copied.
	Base string `json:"base,omitempty"`
	// Files is set where it came from elsewhere and no engine has it yet: each
	// piece is an archive in the folder, and so is the root.
	Files bool `json:"files,omitempty"`
}

// piece is one path of a state.
type piece struct {
	Path   string `json:"path"`
	Volume string `json:"volume,omitempty"`
	// Fresh is set while nothing was on the volume: the engine fills it with what
	// the image has there.
	Fresh bool `json:"fresh,omitempty"`
}

// write puts it into dir so that it survives a power cut: the volumes do.
func (h holding) write(dir string) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return writeFile(dir, b, true)
}

// readHolding reads that of a folder. fs.ErrNotExist means that it owns nothing.
func readHolding(dir string) (holding, error) {
	b, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return holding{}, err
	}
	var h holding
	if err := json.Unmarshal(b, &h); err != nil {
		return holding{}, fmt.Errorf("read the record of a state in %s: %w", dir, err)
	}
	if h.Kind != recordState || h.Host == "" && !h.Files {
		return holding{}, fmt.Errorf("read the record of a state in %s: it is none", dir)
	}
	return h, nil
}

func (r record) write(dir string) error { return writeFile(dir, r.data(), false) }

// writeFile puts a record into dir, whole or not at all.
func writeFile(dir string, b []byte, durable bool) (err error) {
	part := filepath.Join(dir, recordPart)
	defer func() {
		if err != nil {
			os.Remove(part)
			err = fmt.Errorf("write the record: %w", err)
		}
	}()
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(part, filepath.Join(dir, recordName)); err != nil {
		return err
	}
	if durable {
		return syncDir(dir)
	}
	return nil
}

// syncDir makes the names in a directory last, where the system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the instance's folder: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("make the instance's folder private: %w", err)
	}
	return nil
}

// removeFolder removes the folder of an instance, the record last: what is left
// when we are killed meanwhile is still known as ours.
func removeFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.Name() != recordName {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(dir)
}
