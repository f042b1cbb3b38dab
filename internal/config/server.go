package config

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

var serverKeys = []string{
	"title", "driver", "command", "args", "env", "env_file", "cwd",
	"url", "headers", "transport", "ca_file", "builtin", "settings",
	"scope", "enabled", "eager", "protocol", "client_capabilities", "tools",
	"auth", "credential", "policy", "journal", "errors", "connect_timeout", "timeout",
	"state", "template", "workspace", "fork", "budget",
	"docker", "remote", "preset", "startup", "merged",
	"sandbox", "warm", "fork_ahead", "on_fork",
}

// servers reads the servers of a tine.yaml.
func (d *decoder) servers(n *node, c *Config) {
	if n.kind == kindNull {
		return
	}
	if n.kind != kindMap {
		d.fail(n.pos, "servers: want a map of a name to an entry, got %s; write servers: {time: {builtin: time}}", n.shown())
		return
	}
	for _, p := range n.pairs {
		if err := checkID(p.key, d.separator); err != nil {
			d.fail(p.keyPos, "%v", err)
		}
		at := join("servers", p.key)
		gone := d.resolve(p.value, at)
		s := d.server(p.key, p.value, p.keyPos, at)
		d.disable(&s, gone, at)
		c.Servers = append(c.Servers, s)
	}
}

// disable switches a server off whose placeholders have no value.
func (d *decoder) disable(s *Server, lost []missing, path string) {
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
func (d *decoder) server(id string, n *node, idPos pos, at string) (s Server) {
	s = newServer(id)
	defer s.fill()
	if n.kind == kindNull {
		d.fail(idPos, "%s is empty; %s", at, giveOne)
		return s
	}
	o, ok := d.object(n, at, s.hidden, serverKeys)
	if !ok {
		return s
	}
	o = d.preset(o, &s)
	away := o.n.get("command") == nil && o.has("docker", "remote") != ""
	for _, p := range o.n.pairs {
		if away || p.key != "args" && p.key != "env" && p.key != "cwd" {
			d.notAtStart(p.value, join(at, p.key))
		}
	}
	d.what(o, &s, idPos)
	if o.text("title", &s.Title, "Files") && strings.ContainsFunc(s.Title, unicode.IsControl) {
		o.wrong("title", o.n.get("title"), "must be one line")
	}
	o.oneOf("scope", &s.Scope, scopes...)
	if s.Controls() && s.Scope == ScopeSession {
		// In a session it would be among what a fork has to wait for.
		o.wrong("scope", o.n.get("scope"), "is session, but builtin: %s acts on sessions and is in none; leave scope out", s.Builtin)
	}
	d.remembering(o, &s)
	d.copied(o, &s)
	d.startup(o, &s)
	d.merged(o, &s)
	o.boolean("enabled", &s.Enabled)
	o.boolean("eager", &s.Eager)
	o.oneOf("protocol", &s.Protocol, protocols...)
	d.timeouts(o, &s)
	if o.texts("client_capabilities", &s.ClientCapabilities, "[elicitation, sampling]") {
		o.words("client_capabilities", capabilities)
	}
	o.oneOf("credential", &s.Credential, credentials...)
	d.serverAuth(o, &s)
	d.policy(o, &s)
	o.oneOf("journal", &s.Journal, journalModes...)
	o.oneOf("errors", &s.Errors, errorForms...)
	d.tools(o, &s)
	if s.Disabled != "" && s.Enabled {
		d.warn(o.keyPos("env_file"), "%s", s.Disabled)
	}
	d.onlyOnLinux(o, &s)
	return s
}

func (d *decoder) timeouts(o object, s *Server) {
	o.duration("connect_timeout", &s.ConnectTimeout, time.Millisecond, time.Hour)
	o.duration("timeout", &s.Timeout, time.Millisecond, 7*day)
}

func (d *decoder) command(o object, s *Server) {
	if o.text("command", &s.Command, "npx") {
		n := o.n.get("command")
		switch fields := strings.Fields(s.Command); {
		case len(fields) == 0:
			o.wrong("command", n, "is empty; name a program")
		case n.from == "" && len(fields) > 1 && o.n.get("args") == nil && !strings.ContainsAny(s.Command, `/\`):
			line := Server{Args: fields[1:]}
			o.wrong("command", n, "is a whole command line; write command: %s and args: %s", fields[0], flow(listNode(line.shownArgs()...)))
		}
	}
	o.texts("args", &s.Args, `["-y", "some-server"]`)
	d.env(o, s)
	if o.text("cwd", &s.Cwd, "./work") {
		if len(o.n.get("cwd").kept) == 0 {
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

func (d *decoder) env(o object, s *Server) {
	o.textMap("env", &s.Env, "{NAME: value}")
	if n := o.n.get("env"); n != nil {
		for _, p := range n.pairs {
			if p.key == "" || strings.ContainsAny(p.key, "=\x00") {
				d.fail(p.keyPos, "%s.env: %q can't name a variable", o.path, clip(p.key))
			}
		}
	}
	if !o.text("env_file", &s.EnvFile, ".env") {
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
			if o.n.get("command") != nil && atStartPattern.MatchString(v) {
				s.Disabled = fmt.Sprintf("server %q is off: env_file: %s holds ${workspace} or ${state.NAME}, and neither is filled in there; set it under env", s.ID, clip(k))
			}
			s.Env[k] = v
			s.hidden["env."+k] = true
		}
	}
}

func (d *decoder) settings(o object, s *Server) {
	n, ok := o.lookup("settings")
	if !ok || n.kind == kindNull {
		return
	}
	if n.kind != kindMap {
		o.wrong("settings", n, "want a map, got %s", n.kind)
		return
	}
	s.Settings, _ = n.value().(map[string]any)
	if root, ok := s.Settings["root"].(string); ok && s.Builtin == builtinFiles {
		s.Settings["root"] = d.res.paths.resolve(root)
		d.opensRoot(o, s)
	}
	noteAll(n, "settings", s.hidden)
}

func noteAll(n *node, rel string, hidden map[string]bool) {
	if n.from != "" {
		hidden[rel] = true
	}
	for i, item := range n.items {
		noteAll(item, fmt.Sprintf("%s.%d", rel, i), hidden)
	}
	for _, p := range n.pairs {
		noteAll(p.value, join(rel, p.key), hidden)
	}
}

// keyPos is where a key stands.
func (o object) keyPos(key string) pos {
	for _, p := range o.n.pairs {
		if p.key == key {
			return p.keyPos
		}
	}
	return o.n.pos
}
