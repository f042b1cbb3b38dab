package config

import "time"

// Types of Remote.
const (
	RemoteHTTP = "http" // an orchestration API
	RemoteMCP  = "mcp"  // an MCP server whose tools make, call and remove instances
)

// Remote is a server whose instances somebody else runs: an orchestrator is asked
// for one and says where it is. Server.Headers, Server.Auth and Server.CAFile are
// for the orchestrator; the instances never see them.
type Remote struct {
	Type string `yaml:"type" json:",omitzero"` // http or mcp; default http
	URL  string `yaml:"url" json:",omitzero"`  // base of the API, or the MCP endpoint
	// Resource says what kind of instance to make.
	Resource string `yaml:"resource" json:",omitzero"`

	// Of http: paths below URL, in which {remote_instance_id} stands for an
	// instance's. Fork and Snapshot are empty where the API offers none, and Call
	// where calls go to the instance itself. Health is empty for none.
	Create   string `yaml:"create" json:",omitzero"`   // default /instances
	Delete   string `yaml:"delete" json:",omitzero"`   // default /instances/{remote_instance_id}
	Call     string `yaml:"call" json:",omitzero"`     // such as /instances/{remote_instance_id}/call
	Fork     string `yaml:"fork" json:",omitzero"`     // such as /instances/{remote_instance_id}/fork
	Snapshot string `yaml:"snapshot" json:",omitzero"` // such as /instances/{remote_instance_id}/snapshot
	Health   string `yaml:"health" json:",omitzero"`   // such as /health

	// Of mcp: the tools of the orchestrator.
	CreateTool string `yaml:"create_tool" json:",omitzero"` // default initialize_session
	CallTool   string `yaml:"call_tool" json:",omitzero"`   // default call_backend_tool
	ListTool   string `yaml:"list_tool" json:",omitzero"`   // default list_backend_tools
	DeleteTool string `yaml:"delete_tool" json:",omitzero"` // default cleanup_session

	Timeout        time.Duration `yaml:"timeout" json:",omitzero"`         // of one request; default 30s
	ConnectTimeout time.Duration `yaml:"connect_timeout" json:",omitzero"` // default 5s
	Attempts       int           `yaml:"attempts" json:",omitzero"`        // of one request in all; default 3
}

// Startup is a call that an instance must answer before it counts as started.
type Startup struct {
	Tool      string         `yaml:"tool"`
	Arguments map[string]any `yaml:"arguments" json:",omitzero"`
}
