package control

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// maxInstances bounds the instances of one server in a session, and maxTemplate
// what is said of their template, in bytes.
const (
	maxInstances = 1000
	maxTemplate  = 64 << 10
)

// checkMembers refuses what a new session can't have of its servers.
func (c *Sessions) checkMembers(who identity.Principal, in api.NewSession) error {
	for _, id := range slices.Sorted(maps.Keys(in.Members)) {
		m := in.Members[id]
		switch {
		case !access.Starts(who, id) || in.From == "" && c.reg.Catalog().Entry(id) == nil:
			return NoServer(id)
		case len(in.Servers) > 0 && !slices.Contains(in.Servers, id):
			return Invalid("members.%s: servers does not name it, so the session does not have it", id)
		case m.Instances < 0 || m.Instances > maxInstances:
			return Invalid("members.%s.instances must be a number from 1 to %d", id, maxInstances)
		case len(m.Template) > maxTemplate:
			return Invalid("members.%s.template is larger than %d bytes", id, maxTemplate)
		}
	}
	return nil
}

// members is what a new session has of its servers. What a snapshot is called
// depends on who says it, and so does who may begin with it.
func (c *Sessions) members(who identity.Principal, in map[string]api.NewMember) (map[string]catalog.Member, error) {
	if len(in) == 0 {
		return nil, nil
	}
	out := make(map[string]catalog.Member, len(in))
	for _, id := range slices.Sorted(maps.Keys(in)) {
		m := catalog.Member{Instances: in[id].Instances, Template: in[id].Template}
		if string(m.Template) == "null" {
			m.Template = nil
		}
		if e := c.reg.Catalog().Entry(id); e == nil || !e.Info().Details { // there it is the orchestrator's to understand
			var err error
			if m.Snapshot, err = c.templateSnapshot(who, m.Template); err != nil {
				return nil, err
			}
		}
		out[id] = m
	}
	return out, nil
}

// fromSnapshot may stand before the name of a snapshot in a template, to tell it
// from a path.
const fromSnapshot = "snapshot:"

// templateSnapshot is the id of the snapshot that a template means; empty where it
// means something else, which the registry knows.
func (c *Sessions) templateSnapshot(who identity.Principal, raw json.RawMessage) (string, error) {
	var text string
	if raw == nil || json.Unmarshal(raw, &text) != nil {
		return "", nil
	}
	ref, explicit := strings.CutPrefix(text, fromSnapshot)
	snap, err := c.snapshots.Usable(who, ref)
	var e *api.Error
	if !explicit && !strings.HasPrefix(ref, "snp_") && errors.As(err, &e) && e.Status == http.StatusNotFound {
		return "", nil
	}
	return snap.ID, err
}
