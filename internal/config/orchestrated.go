package config

import (
	"strings"
	"time"
)

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

// remoteTable are the keys of remote.
var remoteTable = Table[Remote]{
	Put("type", func(r *Remote) *string { return &r.Type }, OneOf(RemoteHTTP, RemoteMCP).Default(RemoteHTTP), "an orchestration API, or an MCP server whose tools make, call and remove instances"),
	Put("url", func(r *Remote) *string { return &r.URL }, Text("https://orchestrator.example.org").As("URL"), "the base of the API, or the MCP endpoint"),
	Put("resource", func(r *Remote) *string { return &r.Resource }, Text("memory_v1").Then(notBlank), "what kind of instance to make"),
	Put("create", func(r *Remote) *string { return &r.Create }, endpoint("/instances", false).Unless("`/instances`"), "`http`: makes instances"),
	Put("delete", func(r *Remote) *string { return &r.Delete }, endpoint("/instances/"+instanceID, true).Unless("`/instances/{remote_instance_id}`"), "`http`: removes one"),
	Put("call", func(r *Remote) *string { return &r.Call }, endpoint("/instances/"+instanceID+"/call", true), "`http`: calls go here, and not to the instance itself"),
	Put("fork", func(r *Remote) *string { return &r.Fork }, endpoint("/instances/"+instanceID+"/fork", true), "`http`: copies a running one"),
	Put("snapshot", func(r *Remote) *string { return &r.Snapshot }, endpoint("/instances/"+instanceID+"/snapshot", true),
		"`http`: freezes one; with neither this nor `remote.fork` there is no `fork: memory`"),
	Put("health", func(r *Remote) *string { return &r.Health }, endpoint("/health", false), "`http`: health check of the orchestrator"),
	Put("create_tool", func(r *Remote) *string { return &r.CreateTool }, toolOf("initialize_session"), "`mcp`: the tool that makes instances"),
	Put("call_tool", func(r *Remote) *string { return &r.CallTool }, toolOf("call_backend_tool"), "`mcp`: the one that calls their tools"),
	Put("list_tool", func(r *Remote) *string { return &r.ListTool }, toolOf("list_backend_tools"), "`mcp`: the one that lists them"),
	Put("delete_tool", func(r *Remote) *string { return &r.DeleteTool }, toolOf("cleanup_session"), "`mcp`: the one that removes instances"),
	Put("timeout", func(r *Remote) *time.Duration { return &r.Timeout }, Duration(time.Millisecond, time.Hour).Default(30*time.Second), "one request"),
	Put("connect_timeout", func(r *Remote) *time.Duration { return &r.ConnectTimeout }, Duration(time.Millisecond, 10*time.Minute).Default(5*time.Second), "time to connect"),
	Put("attempts", func(r *Remote) *int { return &r.Attempts }, Int[int](1, 10).Default(3), "attempts of one request in total"),
}

// remoteKind is a server whose instances an orchestrator runs.
var remoteKind = KindOf[Remote]{
	Kind: Kind{About: About{Name: "remote", Type: "map", Meaning: "a server whose instances an orchestrator runs, see [below](#orchestrators)"}, Remote: true},
	Keys: remoteTable, Read: readRemote, Fork: remoteFork,
	Connect: func(*Server) time.Duration { return defaultConnectRemote },
	Fill:    fillRemote,
	Target: func(s *Server, r *Remote) string {
		return strings.TrimSpace("remote " + s.ShownText("remote.url", RedactURL(r.URL)) + " " + s.ShownText("remote.resource", r.Resource))
	},
}.Make()

// Startup is a call that an instance must answer before it counts as started.
type Startup struct {
	Tool      string         `yaml:"tool"`
	Arguments map[string]any `yaml:"arguments" json:",omitzero"`
}
