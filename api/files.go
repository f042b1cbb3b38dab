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
)

// File is one entry of a listing. Its path is from the root of its place.
type File struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"` // file, directory or link
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"` // permissions in octal, such as 0644
	Modified time.Time `json:"modified,omitzero"`
	Target   string    `json:"target,omitempty"` // of a link
}

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

// Diff answers GET /v1/sessions/{id}/diff?from=SNAPSHOT: what is another in the session
// than in the snapshot.
type Diff struct {
	From  string       `json:"from"`
	Files []FileDiff   `json:"files"`
	State []StateDiff  `json:"state,omitempty"` // of built-in servers
	Other []Uncompared `json:"other,omitempty"` // what can't be compared, and why
}

// FileDiff is a file that is another.
type FileDiff struct {
	Place  string `json:"place"`
	Path   string `json:"path"`
	Change string `json:"change"` // added, removed or changed
	Type   string `json:"type"`
	Size   int64  `json:"size"` // as it is now, or was
}

// StateDiff is what is another in what a built-in server remembers: the rows of a table, or
// the entities and relations of a graph.
type StateDiff struct {
	Server string `json:"server"`
	// Kind is table, schema, entity, observation or relation, and Name that of the table.
	Kind   string          `json:"kind"`
	Name   string          `json:"name,omitempty"`
	Change string          `json:"change"` // added or removed
	Value  json.RawMessage `json:"value"`
}

// Uncompared is a part of a session that no diff has.
type Uncompared struct {
	Server string `json:"server"`
	Reason string `json:"reason"`
}
