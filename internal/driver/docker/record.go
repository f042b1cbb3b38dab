package docker

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/driver/folder"
)

const recordName = "docker.json"

// record is what is known about an instance: in its folder for the sweep, in its
// handle for the adoption. Before the container exists only its name is set.
type record struct {
	Kind      string `json:"kind"` // recordInstance
	Host      string `json:"host"`
	Name      string `json:"name"`
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`
	// Started is when the instance was.
	Started time.Time `json:"started,omitzero"`
	// Stays is set where the container is the state and outlives its instances.
	Stays bool `json:"stays,omitempty"`
	// Keeps is set where there is a state beside the container's memory.
	Keeps bool `json:"keeps,omitempty"`
	// Mortal is set where it ends with us: Podman closes the input of a container
	// when the attached client goes.
	Mortal bool `json:"mortal,omitempty"`
	// Engine tells one run of the engine from the next, where they can be told apart.
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

var records = folder.Records[record]{
	File: recordName, What: "container",
	Is: func(r record) bool { return r.Kind == recordInstance && r.Name != "" && r.Host != "" },
}

func (r record) data() json.RawMessage  { return records.Data(r) }
func (r record) write(dir string) error { return records.Write(dir, r) }

// holding is what a state or a snapshot consists of. The owner of the file owns it.
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
	if err := folder.WriteSynced(filepath.Join(dir, recordName), b); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
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
