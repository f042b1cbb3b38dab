package api

import (
	"encoding/json"
	"time"
)

// Types of a File.
const (
	FileRegular = "file"
	FileDir     = "directory"
	FileLink    = "link"
	FileOther   = "other" // a FIFO, a socket or a device, which can be listed and not copied
)

// File is one entry of a listing. Its path is from the root of its place.
type File struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"` // file, directory, link or other
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"` // permissions in octal, such as 0644
	Modified time.Time `json:"modified,omitzero"`
	Target   string    `json:"target,omitempty"` // of a link
}

// A folder is a tar whose last entry may be its root, ./, once more with one of these PAX
// records.
const (
	// TarLeftOut is a JSON list of the names below the folder that are no files, folders or
	// links, and were left out; at most 1000.
	TarLeftOut = "TINE.left-out"
	// TarError is the Error, as JSON, for which the copy breaks off after this entry.
	TarError = "TINE.error"
)

// FileList answers GET /v1/sessions/{id}/files/{place}/{path}?list=1.
type FileList struct {
	Files []File `json:"files"`
}

// Put answers PUT /v1/sessions/{id}/files/{place}/{path}.
type Put struct {
	Files int64 `json:"files"` // with directories and links
	Bytes int64 `json:"bytes"`
	// ID is that of the copy in the journal; empty where it is not kept.
	ID string `json:"id,omitempty"`
}

// StateItem is one line of the answer to GET /v1/sessions/{id}/state/{server}: a part of what
// a built-in server remembers.
type StateItem struct {
	// Kind is table, a row of one; schema, the statement that made one; or of a graph entity,
	// observation or relation.
	Kind  string          `json:"kind"`
	Name  string          `json:"name,omitempty"` // of the table
	Value json.RawMessage `json:"value"`
}

// Diff answers GET /v1/sessions/{id}/diff?from=SNAPSHOT: what is another in the session than
// in the snapshot.
type Diff struct {
	From   string       `json:"from"` // the snapshot's id
	Files  []FileDiff   `json:"files"`
	Tables []TableDiff  `json:"tables"`
	Graph  []GraphDiff  `json:"graph"`
	Other  []Uncompared `json:"other,omitempty"` // what can't be compared, and why
}

// FileDiff is a file that is another.
type FileDiff struct {
	Place  string `json:"place"`
	Path   string `json:"path"`
	Change string `json:"change"` // added, removed or changed
	Type   string `json:"type"`   // file, directory or link
	Size   int64  `json:"size"`   // as it is now, or was
}

// TableDiff is a row that a table of the built-in sqlite has and had not, or the other way
// round; a row that was changed is both. With Schema it is the table itself.
type TableDiff struct {
	Server string          `json:"server"`
	Table  string          `json:"table"`
	Change string          `json:"change"` // added or removed
	Row    json.RawMessage `json:"row,omitempty"`
	Schema string          `json:"schema,omitempty"` // the statement that makes it
}

// GraphDiff is a part of the graph of the built-in memory that is there and was not, or the
// other way round.
type GraphDiff struct {
	Server string          `json:"server"`
	Kind   string          `json:"kind"`   // entity, observation or relation
	Change string          `json:"change"` // added or removed
	Value  json.RawMessage `json:"value"`
}

// Uncompared is a part of a session that no diff has.
type Uncompared struct {
	Server string `json:"server"`
	Reason string `json:"reason"`
}
