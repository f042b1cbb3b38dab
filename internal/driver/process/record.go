package process

import (
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
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
	// State is the folder of the state, and Dirs the directories declared in it.
	State string            `json:"state,omitempty"`
	Dirs  []driver.StateDir `json:"dirs,omitempty"`
}

func newRecord(grace, fallback time.Duration) record {
	if grace <= 0 {
		grace = fallback
	}
	return record{Token: rand.Text(), GraceMS: grace.Milliseconds()}
}

func (r record) grace() time.Duration { return time.Duration(r.GraceMS) * time.Millisecond }

var records = folder.Records[record]{File: recordName, What: "process", Is: func(r record) bool { return r.Token != "" }}

func (r record) data() json.RawMessage  { return records.Data(r) }
func (r record) write(dir string) error { return records.Write(dir, r) }
