//go:build linux && (amd64 || arm64)

package sandbox

import (
	"crypto/rand"
	"encoding/json"
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
	Gofer   procid.ID         `json:"gofer,omitzero"`
	State   string            `json:"state,omitempty"`  // the folder of what it remembers
	Memory  bool              `json:"memory,omitempty"` // and which is nothing but its memory
	Base    string            `json:"base,omitempty"`   // digests of what a memory of it needs
	Program string            `json:"program,omitempty"`
	Needs   map[string]string `json:"needs,omitempty"`
	GraceMS int64             `json:"grace_ms,omitempty"`
	Port    int               `json:"port,omitempty"` // of a server that speaks HTTP
	Path    string            `json:"path,omitempty"`
	Domains []string          `json:"domains,omitempty"` // that it may reach
	Ordinal int               `json:"ordinal,omitempty"`
	Follows []string          `json:"follows,omitempty"` // some of what its root has to be brought up to date for
	Limit   int64             `json:"limit,omitempty"`   // bytes of memory that it may take, where no cgroup sees to it
}

func newName() string { return "tine-" + strings.ToLower(rand.Text()[:20]) }

func (r record) grace() time.Duration { return time.Duration(r.GraceMS) * time.Millisecond }

var records = folder.Records[record]{
	File: recordName, What: "sandbox",
	Is: func(r record) bool { return r.Sandbox != "" && hashName.MatchString(r.Runsc) },
}

func (r record) data() json.RawMessage  { return records.Data(r) }
func (r record) write(dir string) error { return records.Write(dir, r) }
