package api

import (
	"encoding/json"
	"time"
)

// The orchestration API is how one program asks another for instances of MCP
// servers: POST /instances and what is below it. A gateway speaks it with `tine
// orchestrator serve`.

// Scopings of an instance.
const (
	ScopingSession = "session"
	ScopingShared  = "shared_global"
)

// NewInstances is the body of POST /instances. With an Idempotency-Key header a
// repeated request gives the same instances.
type NewInstances struct {
	Resource string          `json:"resource_type_identifier" jsonschema:"what to run: the id of one of the orchestrator's servers"`
	Count    *int            `json:"num_instances,omitempty" jsonschema:"how many, all or none; 1 unless given"`
	Session  string          `json:"session_id,omitempty" jsonschema:"the caller's own name for what they belong to; shown again in additional_details"`
	Scoping  string          `json:"instance_scoping,omitempty" jsonschema:"session or shared_global; each instance has a state of its own either way"`
	Template json.RawMessage `json:"template_details,omitempty" jsonschema:"what the state begins with: the name or id of a snapshot, a path under the orchestrator's template_roots, or an object whose snapshot_id is a snapshot's"`
}

// Instance answers it, in a list, and GET /instances/{id}.
type Instance struct {
	ID       string          `json:"remote_instance_id" jsonschema:"what the other routes call it"`
	URL      string          `json:"mcp_endpoint_url" jsonschema:"where it speaks MCP over streamable HTTP"`
	Instance string          `json:"instance_id" jsonschema:"the same as remote_instance_id"`
	Token    string          `json:"access_token,omitempty" jsonschema:"a bearer token for this instance alone; shown when it is made and never again"`
	Details  InstanceDetails `json:"additional_details"`
}

// InstanceDetails is what is known of an instance besides.
type InstanceDetails struct {
	Server   string    `json:"server" jsonschema:"the resource_type_identifier it was made with"`
	Session  string    `json:"session_id,omitempty" jsonschema:"as it was given when it was made"`
	Parent   string    `json:"parent_instance_id,omitempty" jsonschema:"the instance that it was forked from"`
	Snapshot string    `json:"snapshot_id,omitempty" jsonschema:"the snapshot that it, or what it was forked from, began with"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero" jsonschema:"when it is removed, whatever happens"`
	Idle     string    `json:"idle,omitempty" jsonschema:"it is removed when it was unused for that long, such as 24h0m0s"`
	// Only where one instance is asked for, and where it was just made.
	Driver string `json:"driver,omitempty" jsonschema:"what runs it"`
	State  string `json:"state,omitempty" jsonschema:"idle, starting, ready, failed or disabled"`
	Reason string `json:"reason,omitempty" jsonschema:"why it is failed or disabled"`
	Fork   string `json:"fork,omitempty" jsonschema:"what a fork carries: memory, files, fresh, share or refuse"`
}

// InstanceList answers GET /instances?session_id=&resource_type_identifier=&
// limit=&after=: the newest first.
type InstanceList struct {
	Instances []Instance `json:"instances"`
	Next      string     `json:"next,omitempty" jsonschema:"the after of the next page; left out on the last"`
}

// ForkInstance is the body of POST /instances/{id}/fork, which is answered like
// POST /instances.
type ForkInstance struct {
	Count   *int   `json:"count,omitempty" jsonschema:"how many, all or none; 1 unless given"`
	Session string `json:"session_id,omitempty" jsonschema:"as when an instance is made; by default that of the forked instance"`
}

// SnapshotInstance is the body of POST /instances/{id}/snapshot.
type SnapshotInstance struct {
	Name string `json:"name,omitempty" jsonschema:"by which template_details may name it; none unless given"`
}

// InstanceSnapshot answers it. As {"snapshot_id": "..."} it may be the
// template_details of new instances.
type InstanceSnapshot struct {
	ID      string    `json:"snapshot_id"`
	Name    string    `json:"name,omitempty"`
	From    string    `json:"remote_instance_id" jsonschema:"the instance that it is a snapshot of"`
	Created time.Time `json:"created"`
	Size    int64     `json:"size" jsonschema:"bytes that are there because of it, about"`
}

// InstanceCall is the body of POST /instances/{id}/call, which is answered with
// the tool's CallToolResult as the server sent it.
type InstanceCall struct {
	Tool      string          `json:"tool_name"`
	Arguments json.RawMessage `json:"arguments,omitempty" jsonschema:"an object; empty unless given"`
}
