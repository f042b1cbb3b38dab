package config

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// opensRoot remembers the folder of this machine that a server of files works on.
func (d *decoder) opensRoot(o Object, s *Server) {
	root, ok := s.Settings["root"].(string)
	if !ok || s.Builtin != builtinFiles || !filepath.IsAbs(root) {
		return
	}
	readOnly, _ := s.Settings["readonly"].(bool)
	d.opened = append(d.opened, visible{at: o.n.Get("settings").Get("root").Pos, where: o.Path + ".settings.root", path: root, write: !readOnly})
}

// opensBinds remembers what of this machine a container sees. The engine of another
// machine has paths of its own.
func (d *decoder) opensBinds(c Object, to *Docker) {
	if d.elsewhere(to.Host) {
		return
	}
	for i, b := range to.Binds {
		if filepath.IsAbs(b.Source) {
			at, where := c.Spot("binds", i)
			d.opened = append(d.opened, visible{at: at, where: where, path: b.Source, write: !b.ReadOnly})
		}
	}
}

// elsewhere reports whether an engine is on another machine.
func (d *decoder) elsewhere(host string) bool {
	if host == "" {
		host, _ = d.opts.Getenv("DOCKER_HOST")
	}
	u, err := url.Parse(host)
	return err == nil && !slices.Contains([]string{"", "unix", "npipe"}, u.Scheme) && !loopbackHost(u.Hostname())
}

// ownFilesNotOpened complains about a server that is given the gateway's own files: a
// caller could read the gateway's secrets, or choose what the gateway runs.
func (d *decoder) ownFilesNotOpened(c *Config) {
	for _, o := range d.opened {
		real := lastOf(linkChain(o.path))
		for _, f := range c.files {
			if !o.write && !f.secret || !slices.ContainsFunc(linkChain(f.path), func(p string) bool { return Within(p, real) || Within(p, o.path) }) {
				continue
			}
			switch {
			case o.write:
				d.fail(o.at, "%s: holds %s, %s, which a caller of the server could change, and with it what the gateway runs; name a folder that does not hold it, or move the file elsewhere", o.where, f.path, f.what)
			case c.withoutTokens(f):
				d.warn(o.at, "%s: holds %s, %s, which a caller of the server can read; keep secrets out of it, or name a folder that does not hold it", o.where, f.path, f.what)
				continue
			default:
				d.fail(o.at, "%s: holds %s, %s, which a caller of the server could read; name a folder that does not hold it, or move the file elsewhere", o.where, f.path, f.what)
			}
			break // one is enough to say
		}
	}
}

// stateAside complains about a template, a root of files or a bind that has to do with
// the state folder, in which are tokens, keys and the data of all sessions.
func (d *decoder) stateAside() {
	if !filepath.IsAbs(d.opts.State) {
		return
	}
	state := lastOf(linkChain(d.opts.State))
	for _, s := range slices.Concat(d.seeds, d.opened) {
		if !filepath.IsAbs(s.path) {
			continue
		}
		is := ""
		switch real := lastOf(linkChain(s.path)); {
		case Within(state, real):
			is = "holds"
		case Within(real, state):
			is = "lies in"
		default:
			continue
		}
		d.fail(s.at, "%s: %s %s, the gateway's state folder, with its tokens and the data of all sessions; name another folder, or keep the state elsewhere with --state", s.where, is, strings.TrimSuffix(d.opts.State, "/"))
	}
}
