package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// pinned is an entry as it is kept with a session: resolved, and with what must
// not be shown of it.
type pinned struct {
	Server  Server   `json:"server"`
	Options any      `json:"options,omitempty"` // of its kind, which Server.Driver names
	Hidden  []string `json:"hidden,omitempty"`
}

// Pin writes an entry down as it is now, secrets and all, so that Unpin gives
// the same one whatever the config says by then.
func (s Server) Pin() (json.RawMessage, error) {
	b, err := json.Marshal(pinned{s, s.Options, slices.Sorted(maps.Keys(s.hidden))})
	if err != nil {
		return nil, fmt.Errorf("server %q can't be written down: %w", s.ID, err)
	}
	return b, nil
}

// Unpin reads what Pin wrote.
func Unpin(b json.RawMessage) (Server, error) {
	var p pinned
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&p); err != nil {
		return Server{}, fmt.Errorf("reading a server that was written down: %w", err)
	}
	if err := p.Server.unpinOptions(b); err != nil {
		return Server{}, fmt.Errorf("reading a server that was written down: %w", err)
	}
	for key, v := range p.Server.Settings {
		p.Server.Settings[key] = plainNumbers(v)
	}
	if p.Server.Startup != nil {
		for key, v := range p.Server.Startup.Arguments {
			p.Server.Startup.Arguments[key] = plainNumbers(v)
		}
	}
	p.Server.hidden = make(map[string]bool, len(p.Hidden))
	for _, key := range p.Hidden {
		p.Server.hidden[key] = true
	}
	return p.Server, nil
}

// plainNumbers gives numbers back the types that a config has for them.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		for key, e := range v {
			v[key] = plainNumbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = plainNumbers(e)
		}
	}
	return v
}

// unpinOptions reads what the map of its driver said. It once stood in the server
// itself, by the name of the driver.
func (s *Server) unpinOptions(b json.RawMessage) error {
	var p struct {
		Server  struct{ Docker, Remote, Sandbox json.RawMessage }
		Options json.RawMessage
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	raw := p.Options
	for _, old := range []json.RawMessage{p.Server.Docker, p.Server.Remote, p.Server.Sandbox} {
		if raw == nil {
			raw = old
		}
	}
	if raw == nil {
		return nil
	}
	kind := kindOf(s.Driver)
	if kind == nil {
		return fmt.Errorf("driver %q has no options", s.Driver)
	}
	var err error
	s.kind = kind
	s.Options, err = kind.unpin(raw)
	return err
}

// hashed is what of an entry makes another instance. Its fields and their order are
// part of the hashes that instances were recorded with; some had values in earlier
// versions and are always empty now.
type hashed struct {
	ID, Title, Driver, Command string
	Args                       []string
	Env                        map[string]string
	EnvFile, Cwd, URL          string
	Headers                    map[string]string
	Transport, CAFile          string
	Docker, Remote, Sandbox    any `json:",omitzero"`
	Builtin                    string
	Settings                   map[string]any
	Scope                      string
	Enabled, Eager             bool
	Protocol                   string
	State                      []StateDir `json:",omitzero"`
	Workspace                  bool       `json:",omitzero"`
	WorkspacePath              string     `json:",omitzero"`
	ClientCapabilities         []string
	Auth                       ServerAuth
	Credential                 string
	Policy                     Policy
	Journal                    string
	Tools                      Tools
	ConnectTimeout, Timeout    time.Duration
	Disabled                   string
	Options                    any    `json:",omitzero"`
	Front                      string `json:",omitzero"`
	Inline                     bool   `json:",omitzero"`
}

// SpecHash tells whether two entries start the same thing and speak to it in the
// same way. Running instances are recorded with it, and a gateway that finds
// another hash ends them: testdata/pins has the hashes that must stay.
func (s Server) SpecHash() string {
	h := hashed{
		ID: s.ID, Driver: s.Driver, Command: s.Command, Args: s.Args, Env: s.Env, EnvFile: s.EnvFile, Cwd: s.Cwd,
		URL: s.URL, Headers: s.Headers, Transport: s.Transport, CAFile: s.CAFile, Builtin: s.Builtin, Settings: s.Settings,
		Scope: s.Scope, Protocol: s.Protocol, State: s.State, Workspace: s.Workspace, WorkspacePath: s.WorkspacePath,
		ClientCapabilities: s.ClientCapabilities, Auth: s.Auth, Credential: s.Credential, Disabled: s.Disabled, Front: s.Front,
		Inline: s.Inline,
	}
	if s.kind != nil {
		options := s.kind.pinned(s.Options)
		switch s.kind.Name {
		case "docker":
			h.Docker = options
		case "remote":
			h.Remote = options
		case "sandbox":
			h.Sandbox = options
		default:
			h.Options = options
		}
	}
	b, err := json.Marshal(h)
	if err != nil {
		return "" // settings that JSON can't hold: never the same
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}
