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
)

// pinned is an entry as it is kept with a session: resolved, and with what must
// not be shown of it.
type pinned struct {
	Server Server   `json:"server"`
	Hidden []string `json:"hidden,omitempty"`
}

// Pin writes an entry down as it is now, secrets and all, so that Unpin gives
// the same one whatever the config says by then.
func (s Server) Pin() (json.RawMessage, error) {
	b, err := json.Marshal(pinned{s, slices.Sorted(maps.Keys(s.hidden))})
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

// SpecHash tells whether two entries start the same thing and speak to it in the
// same way. Running instances are recorded with it, and a gateway that finds
// another hash ends them: testdata/pins has the hashes that must stay.
func (s Server) SpecHash() string {
	s.Enabled, s.Eager, s.Title, s.Tools, s.Timeout = false, false, "", Tools{}, 0
	s.ConnectTimeout, s.Policy, s.Journal, s.Errors = 0, Policy{}, "", ""
	s.Fork, s.Budget, s.Template, s.Details = "", Budget{}, "", nil
	s.Startup, s.Merged, s.Preset, s.Stateless = nil, false, "", false
	if s.Docker != nil {
		// What the flags say is in the other fields, and where a template went is
		// over when an instance starts.
		d := *s.Docker
		d.RunArgs, d.TemplatePath = nil, ""
		s.Docker = &d
	}
	s.Warm, s.ForkAhead, s.OnFork = 0, false, nil
	if s.Sandbox != nil {
		b := *s.Sandbox
		b.Slots = 0 // how many are prepared says nothing of one
		s.Sandbox = &b
	}
	b, err := json.Marshal(s)
	if err != nil {
		return "" // settings that JSON can't hold: never the same
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}
