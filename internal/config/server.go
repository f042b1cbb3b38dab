package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// servers reads the servers of a tine.yaml.
func (d *decoder) servers(n *Node, c *Config) {
	if n.Shape == ShapeNull {
		return
	}
	if n.Shape != ShapeMap {
		d.fail(n.Pos, "servers: want a map of a name to an entry, got %s; write servers: {time: {builtin: time}}", n.Shown())
		return
	}
	for _, p := range n.Pairs {
		if err := checkID(p.Key, d.separator); err != nil {
			d.fail(p.KeyPos, "%v", err)
		}
		if p.Key == WorkspacePlace {
			d.warn(p.KeyPos, "server %q: where files are copied this name stands for the session's workspace, so that those of this server can't be; give it another name", p.Key)
		}
		at := join("servers", p.Key)
		gone := d.resolve(p.Value, at)
		s := d.server(p.Key, p.Value, p.KeyPos, at)
		d.disable(&s, gone, at)
		c.Servers = append(c.Servers, s)
	}
}

// disable switches a server off whose placeholders have no value, or one that will not
// do.
func (d *decoder) disable(s *Server, lost []missing, path string) {
	lost, d.unfit = append(lost, d.unfit...), nil
	if len(lost) == 0 {
		return
	}
	s.gone = nil
	for _, m := range lost {
		where := strings.TrimPrefix(m.path, path+".")
		s.gone = append(s.gone, gone{where, fmt.Sprintf("%s (%s); %s", m.what, where, m.mend)})
	}
	s.Disabled = s.offBecause()
	if s.Enabled {
		d.warn(lost[0].pos, "%s", s.Disabled)
	}
}

// gone is a value whose placeholder is missing.
type gone struct{ key, why string }

// offBecause is empty when nothing is gone.
func (s *Server) offBecause() string {
	if len(s.gone) == 0 {
		return ""
	}
	reasons := make([]string, len(s.gone))
	for i, g := range s.gone {
		reasons[i] = g.why
	}
	return fmt.Sprintf("server %q is off: %s", s.ID, strings.Join(reasons, "; "))
}

// server reads one entry whose placeholders are resolved.
func (d *decoder) server(id string, n *Node, idPos Pos, at string) (s Server) {
	s = newServer(id)
	defer s.fill()
	if n.Shape == ShapeNull {
		d.fail(idPos, "%s is empty; %s", at, giveOne())
		return s
	}
	o, ok := d.object(n, at, s.hidden, serverTable.Names())
	if !ok {
		return s
	}
	o = d.front(d.preset(o, &s), &s)
	away := o.n.Get("command") == nil && o.alone() != ""
	for _, p := range o.n.Pairs {
		if away || p.Key != "args" && p.Key != "env" && p.Key != "cwd" {
			d.notAtStart(p.Value, join(at, p.Key))
		}
	}
	serverTable.Read(o, &s)
	d.what(o, &s, idPos)
	if s.Controls() && s.Scope == ScopeSession {
		// In a session it would be among what a fork has to wait for.
		o.Wrong("scope", o.n.Get("scope"), "is session, but builtin: %s acts for its caller and is in no session; leave scope out", s.Builtin)
	}
	d.remembering(o, &s)
	d.copied(o, &s)
	d.merged(o, &s)
	d.authFits(o, &s)
	d.policyFits(o, &s)
	if s.Disabled != "" && s.Enabled {
		d.warn(o.KeyPos("env_file"), "%s", s.Disabled)
	}
	d.onThisSystem(o, &s)
	return s
}

// OffReason is why an enabled server is off, for messages that name the server.
func (s *Server) OffReason() string {
	return strings.TrimPrefix(s.Disabled, fmt.Sprintf("server %q is off: ", s.ID))
}

func oneLineTitle(o Object, key string, dst *string) {
	if strings.ContainsFunc(*dst, unicode.IsControl) {
		o.Wrong(key, o.Get(key), "must be one line")
	}
}

func (d *decoder) command(o Object, s *Server) {
	if o.Text("command", &s.Command, "npx") {
		n := o.n.Get("command")
		switch fields := strings.Fields(s.Command); {
		case len(fields) == 0:
			o.Wrong("command", n, "is empty; name a program")
		case n.From == "" && len(fields) > 1 && o.n.Get("args") == nil && !strings.ContainsAny(s.Command, `/\`):
			line := Server{Args: fields[1:]}
			o.Wrong("command", n, "is a whole command line; write command: %s and args: %s", fields[0], flow(ListNode(line.ShownArgs()...)))
		}
	}
	o.Texts("args", &s.Args, `["-y", "some-server"]`)
	d.env(o, s)
	if o.Text("cwd", &s.Cwd, "./work") {
		if len(o.n.Get("cwd").Kept) == 0 {
			s.Cwd = d.res.paths.resolve(s.Cwd)
		}
	}
	// A program named by a relative path is looked for where it will run, else
	// beside the config: never wherever the gateway happened to be started.
	s.Command = d.res.paths.expandHome(s.Command)
	if s.Cwd == "" && strings.ContainsAny(s.Command, `/\`) {
		s.Command = d.res.paths.resolve(s.Command)
	}
}

func (d *decoder) env(o Object, s *Server) {
	o.TextMap("env", &s.Env, "{NAME: value}")
	if n := o.n.Get("env"); n != nil {
		for _, p := range n.Pairs {
			if p.Key == "" || strings.ContainsAny(p.Key, "=\x00") {
				d.fail(p.KeyPos, "%s.env: %q can't name a variable", o.Path, Clip(p.Key))
			}
		}
	}
	if !o.Text("env_file", &s.EnvFile, ".env") {
		return
	}
	s.EnvFile = d.res.paths.resolve(s.EnvFile)
	vars, err := d.readEnvFile(s.EnvFile)
	if err != nil {
		s.Disabled = fmt.Sprintf("server %q is off: env_file: %v", s.ID, err)
		return
	}
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	for k, v := range vars {
		if _, ok := s.Env[k]; !ok {
			if o.n.Get("command") != nil && atStartPattern.MatchString(v) {
				s.Disabled = fmt.Sprintf("server %q is off: env_file: %s holds ${workspace} or ${state.NAME}, and neither is filled in there; set it under env", s.ID, Clip(k))
			}
			s.Env[k] = v
			s.hidden["env."+k] = true
		}
	}
}

func (d *decoder) settings(o Object, s *Server) {
	n, ok := o.Lookup("settings")
	if !ok || n.Shape == ShapeNull {
		return
	}
	if n.Shape != ShapeMap {
		o.Wrong("settings", n, "want a map, got %s", n.Shape)
		return
	}
	s.Settings, _ = n.Value().(map[string]any)
	if root, ok := s.Settings["root"].(string); ok && s.Builtin == builtinFiles {
		s.Settings["root"] = d.res.paths.resolve(root)
		d.opensRoot(o, s)
	}
	if i := slices.IndexFunc(fronts, func(f Front) bool { return f.Name == s.Front }); i >= 0 {
		list, _ := s.Settings[fronts[i].Paths].([]any)
		for i, path := range list {
			if text, ok := path.(string); ok {
				list[i] = d.res.paths.resolve(text)
			}
		}
		d.checkFront(o, n, s, &fronts[i])
	}
	if check := d.opts.Settings[s.Builtin]; check != nil && !n.lacks() {
		d.wrongSettings(o, n, check(s.Settings))
	}
	noteAll(n, "settings", s.hidden)
}

func noteAll(n *Node, rel string, hidden map[string]bool) {
	if n.From != "" {
		hidden[rel] = true
	}
	for i, item := range n.Items {
		noteAll(item, fmt.Sprintf("%s.%d", rel, i), hidden)
	}
	for _, p := range n.Pairs {
		noteAll(p.Value, join(rel, p.Key), hidden)
	}
}

// KeyPos is where a key stands.
func (o Object) KeyPos(key string) Pos {
	for _, p := range o.n.Pairs {
		if p.Key == key {
			return p.KeyPos
		}
	}
	return o.n.Pos
}
