package config

import "fmt"

func (s Sessions) shown(hidden map[string]bool) *node {
	auto := mapNode(pair{key: "every", value: intNode(int64(s.Autosnapshot.Every))})
	auto.inline = true
	auto.setList("before", s.Autosnapshot.Before, "sessions.autosnapshot.before", hidden)
	auto.set("keep", intNode(int64(s.Autosnapshot.Keep)))
	return mapNode(
		pair{key: "max", value: intNode(int64(s.Max))},
		pair{key: "per_principal", value: intNode(int64(s.PerPrincipal))},
		pair{key: "ttl", value: durationNode(s.TTL)},
		pair{key: "idle", value: durationNode(s.Idle)},
		pair{key: "memory", value: boundNode(s.Memory)},
		pair{key: "instances", value: intNode(int64(s.Instances))},
		pair{key: "share", value: stringNode(fmt.Sprintf("%d%%", s.Share))},
		pair{key: "snapshots", value: boundNode(s.Snapshots)},
		pair{key: "wait", value: durationNode(s.Wait)},
		pair{key: "max_wait", value: durationNode(s.MaxWait)},
		pair{key: "fork_wait", value: durationNode(s.ForkWait)},
		pair{key: "on_loss", value: stringNode(s.OnLoss)},
		pair{key: "implicit", value: stringNode(s.Implicit)},
		pair{key: "autosnapshot", value: auto})
}

func boundNode(v int64) *node {
	if v == 0 {
		return stringNode(noBound)
	}
	return sizeNode(v)
}

func (w Workspace) shown(hidden map[string]bool) *node {
	if w.Template == "" && w.Path == "" {
		return boolNode(w.On)
	}
	n := mapNode()
	n.inline = true
	rel := "workspace.template"
	if hidden["workspace"] { // it was written as one string
		rel = "workspace"
	}
	if w.Template != "" {
		n.setText("template", w.Template, rel, hidden)
	}
	if w.Path != "" {
		n.setText("path", w.Path, "workspace.path", hidden)
	}
	return n
}

// showRemembering adds what a server keeps, and what a fork carries of it.
func (s *Server) showRemembering(n *node) {
	if s.Stateless {
		n.set("state", stringNode(noState))
	}
	if len(s.State) > 0 {
		dirs := mapNode()
		dirs.inline = true
		for _, d := range s.State {
			v := &node{kind: kindNull, text: "null"}
			if d.Template != "" {
				v = stringNode(s.shownText("state."+d.Name, d.Template))
			}
			dirs.pairs = append(dirs.pairs, pair{key: d.Name, value: v})
		}
		n.set("state", dirs)
	}
	if s.Template != "" {
		n.set("template", stringNode(s.shownText("template", s.Template)))
	}
	if len(s.Details) > 0 {
		n.set("template", shownAny("template", s.detailsValue(), s.hidden))
	}
	if s.Driver == "process" || s.Driver == "sandbox" || s.Driver == "builtin" {
		n.set("workspace", boolNode(s.Workspace))
	}
	if s.Fork != "" {
		n.set("fork", stringNode(s.Fork))
	}
	if s.Budget.Memory > 0 {
		b := mapNode(pair{key: "memory", value: sizeNode(s.Budget.Memory)})
		b.inline = true
		n.set("budget", b)
	}
	s.showCopied(n)
}
