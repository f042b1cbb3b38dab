package config

import (
	"net/url"
	"regexp"
	"strings"
	"time"
)

var (
	remoteTypes = []string{RemoteHTTP, RemoteMCP}
	// The keys of remote, by the type that they go with.
	orchestratorKeys = []string{"type", "url", "resource", "timeout", "connect_timeout", "attempts"}
	endpointKeys     = []string{"create", "delete", "call", "fork", "snapshot", "health"}
	orchestratorTool = []string{"create_tool", "call_tool", "list_tool", "delete_tool"}
)

// instanceID stands for an instance in the path of an endpoint.
const instanceID = "{remote_instance_id}"

var endpointPattern = regexp.MustCompile(`^/[^\s#{}]*$`)

// remote reads a server whose instances an orchestrator runs.
func (d *decoder) remote(o object, s *Server) {
	if o.n.get("remote") == nil {
		return
	}
	s.Remote = &Remote{}
	known := append(append(append([]string{}, orchestratorKeys...), endpointKeys...), orchestratorTool...)
	r, ok := o.child("remote", known)
	if !ok {
		return
	}
	to := s.Remote
	to.Type = RemoteHTTP
	r.oneOf("type", &to.Type, remoteTypes...)
	d.remoteURL(r, to, o.keyPos("remote"))
	switch n := r.n.get("resource"); {
	case n == nil:
		d.fail(o.keyPos("remote"), "%s: resource is missing; it says what kind of instance to make", r.path)
	case r.text("resource", &to.Resource, "memory_v1") && strings.TrimSpace(to.Resource) == "":
		r.wrong("resource", n, "is empty; say what kind of instance to make")
	}
	for _, key := range r.otherType(to.Type) {
		other := RemoteHTTP
		if to.Type == RemoteHTTP {
			other = RemoteMCP
		}
		d.fail(r.keyPos(key), "%s.%s: goes with type: %s, but this is type %s; remove it", r.path, key, other, to.Type)
	}
	r.endpoint("create", &to.Create, "/instances", false)
	r.endpoint("health", &to.Health, "/health", false)
	r.endpoint("delete", &to.Delete, "/instances/"+instanceID, true)
	r.endpoint("call", &to.Call, "/instances/"+instanceID+"/call", true)
	r.endpoint("fork", &to.Fork, "/instances/"+instanceID+"/fork", true)
	r.endpoint("snapshot", &to.Snapshot, "/instances/"+instanceID+"/snapshot", true)
	r.toolName("create_tool", &to.CreateTool)
	r.toolName("call_tool", &to.CallTool)
	r.toolName("list_tool", &to.ListTool)
	r.toolName("delete_tool", &to.DeleteTool)
	r.duration("timeout", &to.Timeout, time.Millisecond, time.Hour)
	r.duration("connect_timeout", &to.ConnectTimeout, time.Millisecond, 10*time.Minute)
	r.integer("attempts", &to.Attempts, 1, 10)
}

func (d *decoder) remoteURL(r object, to *Remote, at pos) {
	n := r.n.get("url")
	if n == nil {
		d.fail(at, "%s: url is missing; it is where the orchestrator is", r.path)
		return
	}
	if !r.text("url", &to.URL, "https://orchestrator.example.org") {
		return
	}
	u, err := url.Parse(to.URL)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		r.wrong("url", n, "%s is not an absolute http or https URL; write it like https://orchestrator.example.org", n.quoted())
	case u.User != nil:
		r.wrong("url", n, "has a user; put the credentials into headers or auth")
	case u.Fragment != "":
		r.wrong("url", n, "has a fragment (#...), which is never sent; remove it")
	case u.RawQuery != "" && to.Type == RemoteHTTP:
		r.wrong("url", n, "has a query, and paths are put after it; remove it")
	}
	if to.Type == RemoteHTTP {
		to.URL = strings.TrimRight(to.URL, "/")
	}
}

// otherType lists the keys that are there and go with another type.
func (r object) otherType(kind string) []string {
	wrong := orchestratorTool
	if kind == RemoteMCP {
		wrong = endpointKeys
	}
	var found []string
	for _, key := range wrong {
		if r.n.get(key) != nil {
			found = append(found, key)
		}
	}
	return found
}

// endpoint reads a path below the orchestrator's URL.
func (r object) endpoint(key string, dst *string, example string, ofInstance bool) {
	if !r.text(key, dst, example) {
		return
	}
	n := r.n.get(key)
	plain := strings.ReplaceAll(*dst, instanceID, "x")
	switch {
	case !endpointPattern.MatchString(plain) || strings.Contains(plain, "://"):
		r.wrong(key, n, "%s is not a path below url; write it like %s", n.shown(), example)
	case ofInstance && plain == *dst:
		r.wrong(key, n, "%s does not say which instance; write it like %s", n.shown(), example)
	case !ofInstance && plain != *dst:
		r.wrong(key, n, "%s names an instance, and there is none yet; write it like %s", n.shown(), example)
	}
}

func (r object) toolName(key string, dst *string) {
	if r.text(key, dst, "initialize_session") && !toolPattern.MatchString(*dst) {
		n := r.n.get(key)
		r.wrong(key, n, "%s is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores", n.shown())
	}
}

func (r *Remote) fill() {
	setDefault(&r.Type, RemoteHTTP)
	if r.Type == RemoteHTTP {
		setDefault(&r.Create, "/instances")
		setDefault(&r.Delete, "/instances/"+instanceID)
	} else {
		setDefault(&r.CreateTool, "initialize_session")
		setDefault(&r.CallTool, "call_backend_tool")
		setDefault(&r.ListTool, "list_backend_tools")
		setDefault(&r.DeleteTool, "cleanup_session")
	}
	if r.Timeout == 0 {
		r.Timeout = 30 * time.Second
	}
	if r.ConnectTimeout == 0 {
		r.ConnectTimeout = 5 * time.Second
	}
	if r.Attempts == 0 {
		r.Attempts = 3
	}
}

// remoteFork refuses what the orchestrator is not said to offer.
func (d *decoder) remoteFork(o object, s *Server) {
	n := o.n.get("fork")
	switch {
	case s.Fork == ForkMemory && s.Remote.Type == RemoteMCP:
		o.wrong("fork", n, "%s copies a running server, and an orchestrator of type mcp has no tool for that; use fresh, share or refuse", n.shown())
	case s.Fork == ForkMemory && s.Remote.Fork == "" && s.Remote.Snapshot == "":
		o.wrong("fork", n, "%s copies a running server, and nothing says that the orchestrator of %q can; name its endpoint with remote.fork: /instances/%s/fork, or remote.snapshot, or use fresh, share or refuse", n.shown(), s.ID, instanceID)
	case s.Fork == ForkFiles:
		o.wrong("fork", n, "%s carries files that Tine knows of, and the instances of %q are the orchestrator's; use memory with remote.fork or remote.snapshot, fresh, share or refuse", n.shown(), s.ID)
	}
}
