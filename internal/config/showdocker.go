package config

import (
	"bytes"
	"encoding/json"
)

// shownDocker is the container with every secret masked. The flags are shown as
// they were written, beside what they say.
func (s *Server) shownDocker() *node {
	c, n := s.Docker, mapNode()
	text := func(key, v string) { n.setText(key, v, "docker."+key, s.hidden) }
	list := func(key string, v []string) { n.setList(key, v, "docker."+key, s.hidden) }
	text("host", RedactURL(c.Host))
	text("image", c.Image)
	text("pull", c.Pull)
	n.setArgs("entrypoint", c.Entrypoint, s.hidden)
	n.setArgs("command", c.Command, s.hidden)
	text("workdir", c.Workdir)
	text("user", c.User)
	text("hostname", c.Hostname)
	text("transport", c.Transport)
	if c.Port > 0 {
		n.set("port", intNode(int64(c.Port)))
	}
	text("path", c.Path)
	text("reach", c.Reach)
	list("state", c.State)
	text("template_path", c.TemplatePath)
	if len(c.Binds) > 0 {
		n.set("binds", s.shownBinds())
	}
	list("tmpfs", c.Tmpfs)
	text("network", c.Network)
	text("runtime", c.Runtime)
	if c.Memory > 0 {
		n.set("memory", sizeNode(c.Memory))
	}
	if c.CPUs > 0 {
		n.set("cpus", numberNode(c.CPUs))
	}
	if c.Pids != 0 {
		n.set("pids", intNode(c.Pids))
	}
	if c.ShmSize > 0 {
		n.set("shm_size", sizeNode(c.ShmSize))
	}
	list("cap_add", c.CapAdd)
	n.setMap("labels", c.Labels, func(name, v string) string {
		if v != "" && (s.hidden["docker.labels."+name] || secretName(name) || secretText.MatchString(v)) {
			return mask
		}
		return RedactURL(v)
	})
	n.set("plain", boolNode(c.Plain))
	n.set("writable", boolNode(c.Writable))
	n.set("init", boolNode(c.Init))
	n.setArgs("run_args", c.RunArgs, s.hidden)
	return n
}

// setArgs sets a command line of docker's, masked as arguments are.
func (n *node) setArgs(key string, args []string, hidden map[string]bool) {
	if len(args) > 0 {
		n.set(key, listNode(shownLine(args, "docker."+key, hidden)...))
	}
}

func (s *Server) shownBinds() *node {
	list := &node{kind: kindList}
	for i, b := range s.Docker.Binds {
		rel := "docker.binds." + itoa(i)
		m := mapNode()
		m.setText("source", b.Source, rel+".source", s.hidden)
		m.setText("target", b.Target, rel+".target", s.hidden)
		if b.ReadOnly {
			m.set("read_only", boolNode(true))
		}
		list.items = append(list.items, m)
	}
	return list
}

func (s *Server) shownRemote() *node {
	r, n := s.Remote, mapNode()
	text := func(key, v string) { n.setText(key, v, "remote."+key, s.hidden) }
	text("type", r.Type)
	text("url", RedactURL(r.URL))
	text("resource", r.Resource)
	for _, e := range r.texts()[2:] {
		text(e.key, e.value)
	}
	n.set("timeout", durationNode(r.Timeout))
	n.set("connect_timeout", durationNode(r.ConnectTimeout))
	n.set("attempts", intNode(int64(r.Attempts)))
	return n
}

type keyText struct{ key, value string }

// texts are what is a string of a remote, by key.
func (r *Remote) texts() []keyText {
	return []keyText{
		{"url", r.URL}, {"resource", r.Resource},
		{"create", r.Create}, {"delete", r.Delete}, {"call", r.Call}, {"fork", r.Fork}, {"snapshot", r.Snapshot}, {"health", r.Health},
		{"create_tool", r.CreateTool}, {"call_tool", r.CallTool}, {"list_tool", r.ListTool}, {"delete_tool", r.DeleteTool},
	}
}

// texts are what is one string of a container, by key.
func (d *Docker) texts() []keyText {
	return []keyText{
		{"host", d.Host}, {"image", d.Image}, {"workdir", d.Workdir}, {"user", d.User}, {"hostname", d.Hostname},
		{"path", d.Path}, {"template_path", d.TemplatePath}, {"network", d.Network}, {"runtime", d.Runtime},
	}
}

// detailsValue is the template of a remote server as plain values.
func (s *Server) detailsValue() any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(s.Details))
	dec.UseNumber()
	if len(s.Details) == 0 || dec.Decode(&v) != nil {
		return nil
	}
	return plainNumbers(v)
}

func (s *Server) shownStartup() *node {
	n := mapNode()
	n.setText("tool", s.Startup.Tool, "startup.tool", s.hidden)
	if len(s.Startup.Arguments) > 0 {
		n.set("arguments", shownAny("startup.arguments", s.Startup.Arguments, s.hidden))
	}
	return n
}
