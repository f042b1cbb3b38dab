package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// parseMembers reads what is said of some servers of a new session: how many
// instances, SERVER=N, and what they begin with, SERVER=TEMPLATE. A template that
// is an object or a list is JSON; anything else is text.
func parseMembers(instances, templates []string) (map[string]api.NewMember, error) {
	if len(instances)+len(templates) == 0 {
		return nil, nil
	}
	members := make(map[string]api.NewMember)
	for _, text := range instances {
		server, number, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(number)
		m := members[server]
		switch {
		case server == "" || err != nil || n < 1:
			return nil, usagef("--instances wants SERVER=N with a number above 0, got %q", text)
		case m.Instances != 0:
			return nil, usagef("--instances says twice how many of %q there are", server)
		}
		m.Instances = n
		members[server] = m
	}
	for _, text := range templates {
		server, template, _ := strings.Cut(text, "=")
		m := members[server]
		switch {
		case server == "" || template == "":
			return nil, usagef("--template wants SERVER=TEMPLATE, the name of a snapshot or a path under template_roots, got %q", text)
		case m.Template != nil:
			return nil, usagef("--template says twice what %q begins with", server)
		}
		if raw := json.RawMessage(template); strings.ContainsAny(template[:1], "{[") && json.Valid(raw) {
			m.Template = raw
		} else if m.Template, _ = json.Marshal(template); m.Template == nil {
			return nil, usagef("--template %s can't be sent", server)
		}
		members[server] = m
	}
	return members, nil
}
