package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// How RewardKit calls the drivers that it has too. The others have their own
// names.
var modes = map[string]string{"docker": "local_docker", "remote": "remote_http_api"}

func modeOf(driver string) string {
	if mode, ok := modes[driver]; ok {
		return mode
	}
	return driver
}

type initArgs struct {
	Backends []json.RawMessage `json:"backends"`
	Key      string            `json:"idempotency_key"`
}

type backendArgs struct {
	Name     string          `json:"backend_name_ref"`
	Count    *int            `json:"num_instances"`
	Template json.RawMessage `json:"template_details"`
	Prefer   string          `json:"orchestration_preference"`
}

// initialized answers initialize_session.
type initialized struct {
	Session  string    `json:"session_id"`
	RK       string    `json:"rk_session_id"` // the same
	Token    string    `json:"token"`
	Backends []backend `json:"initialized_backends"`
}

type backend struct {
	Name      string     `json:"backend_name_ref"`
	Instances []instance `json:"instances"`
}

type instance struct {
	ID        string  `json:"instance_id"`
	Backend   string  `json:"backend_name_ref"`
	Mode      string  `json:"orchestration_mode"`
	Transport string  `json:"mcp_transport"`
	URL       string  `json:"mcp_endpoint_url,omitempty"`
	Details   details `json:"internal_instance_details"`
}

type details struct {
	Driver string `json:"driver"`
	Scope  string `json:"scope"`
	Fork   string `json:"fork,omitempty"`
}

// initialize opens a session with the backends that are named and nothing else.
func initialize(ctx context.Context, s Sessions, caller string, in *initArgs) (initialized, error) {
	if len(in.Backends) == 0 {
		return initialized{}, invalid("backends must name at least one backend")
	}
	servers, err := s.Servers(ctx, caller)
	if err != nil {
		return initialized{}, err
	}
	open := api.NewSession{Eager: true}
	for i, raw := range in.Backends {
		id, m, err := readBackend(raw, servers)
		if err == nil && slices.Contains(open.Servers, id) {
			err = invalid("%q is named twice; num_instances gives several of one", id)
		}
		if err != nil {
			return initialized{}, inside(err, fmt.Sprintf("backends[%d]", i))
		}
		open.Servers = append(open.Servers, id)
		if m.Instances > 1 || m.Template != nil {
			if open.Members == nil {
				open.Members = make(map[string]api.NewMember)
			}
			open.Members[id] = m
		}
	}
	opened, err := s.Open(ctx, caller, in.Key, open)
	if err != nil {
		return initialized{}, err
	}
	if err := s.Use(ctx, caller, opened.ID); err != nil {
		// The caller would not know of it; with a key it can ask again.
		if in.Key == "" {
			_ = s.Close(context.WithoutCancel(ctx), caller, opened.ID)
		}
		return initialized{}, err
	}
	out := initialized{Session: opened.ID, RK: opened.ID, Token: opened.Token}
	for _, id := range open.Servers {
		out.Backends = append(out.Backends, backend{id, instancesOf(&opened.Session, find(servers, id))})
	}
	return out, nil
}

// readBackend reads one backend of a new session, and holds it against what there
// is.
func readBackend(raw json.RawMessage, servers []api.Server) (string, api.NewMember, error) {
	var b backendArgs
	var m api.NewMember
	if err := read(raw, &b); err != nil {
		return "", m, err
	}
	if b.Name == "" {
		return "", m, invalid("backend_name_ref must name a backend; there are %s", idsOf(servers))
	}
	s := find(servers, b.Name)
	if s == nil {
		return "", m, invalid("there is no backend %s; there are %s", quote(b.Name), idsOf(servers))
	}
	if !s.Enabled {
		return "", m, &api.Error{Kind: api.KindRefused, Server: s.ID, Message: fmt.Sprintf("backend %q is off: %s", s.ID, s.Reason)}
	}
	if b.Prefer != "" && b.Prefer != s.Driver && b.Prefer != modeOf(s.Driver) {
		return "", m, invalid("backend %q is run as %s, not as its orchestration_preference %s says; leave that out, or name a backend that is", s.ID, modeOf(s.Driver), quote(b.Prefer))
	}
	if b.Count != nil {
		if m.Instances = *b.Count; m.Instances < 1 {
			return "", m, invalid("num_instances must be at least 1")
		}
	}
	if string(b.Template) != "null" {
		m.Template = b.Template
	}
	return s.ID, m, nil
}

// instancesOf are the members that a session has of a server.
func instancesOf(s *api.Session, of *api.Server) []instance {
	out := []instance{}
	for _, m := range s.Members {
		if server, _, _ := strings.Cut(m.Server, "~"); server != of.ID {
			continue
		}
		i := instance{
			ID: m.Server, Backend: of.ID, Mode: modeOf(m.Driver), Transport: of.Transport,
			Details: details{Driver: m.Driver, Scope: m.Scope, Fork: m.Fork},
		}
		if i.Transport == "" {
			i.Transport = "http" // which is how it is reached
		}
		if s.URL != "" {
			i.URL = s.URL + "/" + m.Server
		}
		out = append(out, i)
	}
	return out
}

func find(servers []api.Server, id string) *api.Server {
	for i := range servers {
		if servers[i].ID == id {
			return &servers[i]
		}
	}
	return nil
}

// idsOf names servers.
func idsOf(servers []api.Server) string {
	if len(servers) == 0 {
		return "none that you may use"
	}
	ids := make([]string, len(servers))
	for i := range servers {
		ids[i] = servers[i].ID
	}
	return strings.Join(ids, ", ")
}
