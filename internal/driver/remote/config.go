package remote

import (
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

// Types of an orchestrator.
const (
	TypeHTTP = "http" // an orchestration API
	TypeMCP  = "mcp"  // an MCP server whose tools make, call and remove instances
)

// Config is a server whose instances an orchestrator runs: it is asked for one and says
// where it is. Server.Headers, Server.Auth and Server.CAFile are for the orchestrator;
// the instances never see them.
type Config struct {
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

// keys are those of remote.
var keys = config.Table[Config]{
	config.Put("type", func(r *Config) *string { return &r.Type }, config.OneOf(TypeHTTP, TypeMCP).Default(TypeHTTP), "an orchestration API, or an MCP server whose tools make, call and remove instances"),
	config.Put("url", func(r *Config) *string { return &r.URL }, config.Text("https://orchestrator.example.org").As("URL"), "the base of the API, or the MCP endpoint"),
	config.Put("resource", func(r *Config) *string { return &r.Resource }, config.Text("memory_v1").Then(notBlank), "what kind of instance to make"),
	config.Put("create", func(r *Config) *string { return &r.Create }, endpoint("/instances", false).Unless("`/instances`"), "`http`: makes instances"),
	config.Put("delete", func(r *Config) *string { return &r.Delete }, endpoint("/instances/"+instanceID, true).Unless("`/instances/{remote_instance_id}`"), "`http`: removes one"),
	config.Put("call", func(r *Config) *string { return &r.Call }, endpoint("/instances/"+instanceID+"/call", true), "`http`: calls go here, and not to the instance itself"),
	config.Put("fork", func(r *Config) *string { return &r.Fork }, endpoint("/instances/"+instanceID+"/fork", true), "`http`: copies a running one"),
	config.Put("snapshot", func(r *Config) *string { return &r.Snapshot }, endpoint("/instances/"+instanceID+"/snapshot", true),
		"`http`: freezes one; with neither this nor `remote.fork` there is no `fork: memory`"),
	config.Put("health", func(r *Config) *string { return &r.Health }, endpoint("/health", false), "`http`: health check of the orchestrator"),
	config.Put("create_tool", func(r *Config) *string { return &r.CreateTool }, toolOf("initialize_session"), "`mcp`: the tool that makes instances"),
	config.Put("call_tool", func(r *Config) *string { return &r.CallTool }, toolOf("call_backend_tool"), "`mcp`: the one that calls their tools"),
	config.Put("list_tool", func(r *Config) *string { return &r.ListTool }, toolOf("list_backend_tools"), "`mcp`: the one that lists them"),
	config.Put("delete_tool", func(r *Config) *string { return &r.DeleteTool }, toolOf("cleanup_session"), "`mcp`: the one that removes instances"),
	config.Put("timeout", func(r *Config) *time.Duration { return &r.Timeout }, config.Duration(time.Millisecond, time.Hour).Default(30*time.Second), "one request"),
	config.Put("connect_timeout", func(r *Config) *time.Duration { return &r.ConnectTimeout }, config.Duration(time.Millisecond, 10*time.Minute).Default(5*time.Second), "time to connect"),
	config.Put("attempts", func(r *Config) *int { return &r.Attempts }, config.Int[int](1, 10).Default(3), "attempts of one request in total"),
}

// Kind is what a config says of a server whose instances an orchestrator runs.
var Kind = config.KindOf[Config]{
	Kind: config.Kind{About: config.About{Name: "remote", Type: "map", Meaning: "a server whose instances an orchestrator runs, see [below](#orchestrators)"},
		Remote:      true,
		Beside:      []string{"headers", "ca_file", "auth", "template"},
		NoWorkspace: "a server that an orchestrator runs can't see a directory of this machine; remove it",
		Copier:      "remote with remote.fork or remote.snapshot",
	},
	Keys: keys, Read: readRemote, Fork: remoteFork,
	Connect: func(*config.Server) time.Duration { return time.Minute },
	Fill:    fillRemote,
	Target: func(s *config.Server, r *Config) string {
		return strings.TrimSpace("remote " + s.ShownText("remote.url", config.RedactURL(r.URL)) + " " + s.ShownText("remote.resource", r.Resource))
	},
}.Make()
