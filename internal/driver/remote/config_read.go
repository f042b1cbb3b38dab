package remote

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

var (
	// The keys of remote that go with one type alone.
	endpointKeys     = []string{"create", "delete", "call", "fork", "snapshot", "health"}
	orchestratorTool = []string{"create_tool", "call_tool", "list_tool", "delete_tool"}
)

// instanceID stands for an instance in the path of an endpoint.
const instanceID = "{remote_instance_id}"

var endpointPattern = regexp.MustCompile(`^/[^\s#{}]*$`)

// readRemote reads a server whose instances an orchestrator runs.
func readRemote(o config.Object, _ *config.Server) *Config {
	if o.Get("remote") == nil {
		return nil
	}
	to := &Config{}
	r, ok := o.Child("remote", keys.Names())
	if !ok {
		return to
	}
	to.Type = TypeHTTP
	keys.Read(r, to)
	remoteURL(r, to, o.KeyPos("remote"))
	if r.Get("resource") == nil && !r.HasUnknown(keys.Names()) {
		o.Fail(o.KeyPos("remote"), "%s: resource is missing; it says what kind of instance to make", r.Path)
	}
	for _, key := range otherType(r, to.Type) {
		other := TypeHTTP
		if to.Type == TypeHTTP {
			other = TypeMCP
		}
		o.Fail(r.KeyPos(key), "%s.%s: goes with type: %s, but this is type %s; remove it", r.Path, key, other, to.Type)
	}
	return to
}

func notBlank(r config.Object, key string, dst *string) {
	if strings.TrimSpace(*dst) == "" {
		r.Wrong(key, r.Get(key), "is empty; say what kind of instance to make")
	}
}

func remoteURL(r config.Object, to *Config, at config.Pos) {
	n := r.Get("url")
	if n == nil && r.HasUnknown(keys.Names()) {
		return
	}
	if n == nil {
		r.Fail(at, "%s: url is missing; it is where the orchestrator is", r.Path)
		return
	}
	if r.Lacks("url") {
		return // reported already
	}
	u, err := url.Parse(to.URL)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		r.Wrong("url", n, "%s is not an absolute http or https URL; write it like https://orchestrator.example.org", n.Shown())
	case u.User != nil:
		r.Wrong("url", n, "has a user; put the credentials into headers or auth")
	case u.Fragment != "":
		r.Wrong("url", n, "has a fragment (#...), which is never sent; remove it")
	case u.RawQuery != "" && to.Type == TypeHTTP:
		r.Wrong("url", n, "has a query, and paths are put after it; remove it")
	}
	if to.Type == TypeHTTP {
		to.URL = strings.TrimRight(to.URL, "/")
	}
}

// otherType lists the keys that are there and go with another type.
func otherType(r config.Object, kind string) []string {
	wrong := orchestratorTool
	if kind == TypeMCP {
		wrong = endpointKeys
	}
	var found []string
	for _, key := range wrong {
		if r.Get(key) != nil {
			found = append(found, key)
		}
	}
	return found
}

// endpoint is a path below the orchestrator's URL.
func endpoint(example string, ofInstance bool) config.Value[string] {
	v := config.Text(example).As("path below the URL")
	if ofInstance {
		v = v.As("path with `" + instanceID + "`")
	}
	return v.Unless("none").Then(func(r config.Object, key string, dst *string) {
		n, plain := r.Get(key), strings.ReplaceAll(*dst, instanceID, "x")
		switch {
		case !endpointPattern.MatchString(plain) || strings.Contains(plain, "://"):
			r.Wrong(key, n, "%s is not a path below url; write it like %s", n.Shown(), example)
		case ofInstance && plain == *dst:
			r.Wrong(key, n, "%s does not say which instance; write it like %s", n.Shown(), example)
		case !ofInstance && plain != *dst:
			r.Wrong(key, n, "%s names an instance, and there is none yet; write it like %s", n.Shown(), example)
		}
	})
}

// toolOf is the name of a tool of the orchestrator.
func toolOf(std string) config.Value[string] {
	return config.Text("initialize_session").As("a tool's name").Unless("`" + std + "`").Then(config.CheckTool)
}

func fillRemote(_ *config.Server, r *Config) {
	if r.Type == TypeHTTP {
		config.SetDefault(&r.Create, "/instances")
		config.SetDefault(&r.Delete, "/instances/"+instanceID)
		return
	}
	config.SetDefault(&r.CreateTool, "initialize_session")
	config.SetDefault(&r.CallTool, "call_backend_tool")
	config.SetDefault(&r.ListTool, "list_backend_tools")
	config.SetDefault(&r.DeleteTool, "cleanup_session")
}

// remoteFork refuses forks that the orchestrator does not offer.
func remoteFork(o config.Object, s *config.Server, r *Config) bool {
	n := o.Get("fork")
	switch {
	case s.Fork == config.ForkMemory && r.Type == TypeMCP:
		o.Wrong("fork", n, "%s copies a running server, and an orchestrator of type mcp has no tool for that; use fresh, share or refuse", n.Shown())
	case s.Fork == config.ForkMemory && r.Fork == "" && r.Snapshot == "":
		o.Wrong("fork", n, "%s copies a running server, and nothing says that the orchestrator of %q can; name its endpoint with remote.fork: /instances/%s/fork, or remote.snapshot, or use fresh, share or refuse", n.Shown(), s.ID, instanceID)
	case s.Fork == config.ForkFiles:
		o.Wrong("fork", n, "%s carries files that Tine knows of, and the instances of %q are the orchestrator's; use memory with remote.fork or remote.snapshot, fresh, share or refuse", n.Shown(), s.ID)
	}
	return true
}
