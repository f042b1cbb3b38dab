package config

import (
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
	d.opened = append(d.opened, Visible{At: o.n.Get("settings").Get("root").Pos, Where: o.Path + ".settings.root", Path: root, Write: !readOnly})
}

// Opens remembers a path of this machine that a server is given.
func (o Object) Opens(v Visible) { o.d.opened = append(o.d.opened, v) }

// ownFilesNotOpened complains about a server that is given the gateway's own files: a
// caller could read the gateway's secrets, or choose what the gateway runs.
func (d *decoder) ownFilesNotOpened(c *Config) {
	for _, o := range d.opened {
		real := lastOf(linkChain(o.Path))
		for _, f := range c.files {
			if !o.Write && !f.secret || !slices.ContainsFunc(linkChain(f.path), func(p string) bool { return Within(p, real) || Within(p, o.Path) }) {
				continue
			}
			switch {
			case o.Write:
				d.fail(o.At, "%s: holds %s, %s, which a caller of the server could change, and with it what the gateway runs; name a folder that does not hold it, or move the file elsewhere", o.Where, f.path, f.what)
			case c.withoutTokens(f):
				d.warn(o.At, "%s: holds %s, %s, which a caller of the server can read; keep secrets out of it, or name a folder that does not hold it", o.Where, f.path, f.what)
				continue
			default:
				d.fail(o.At, "%s: holds %s, %s, which a caller of the server could read; name a folder that does not hold it, or move the file elsewhere", o.Where, f.path, f.what)
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
		if !filepath.IsAbs(s.Path) {
			continue
		}
		is := ""
		switch real := lastOf(linkChain(s.Path)); {
		case Within(state, real):
			is = "holds"
		case Within(real, state):
			is = "lies in"
		default:
			continue
		}
		d.fail(s.At, "%s: %s %s, the gateway's state folder, with its tokens and the data of all sessions; name another folder, or keep the state elsewhere with --state", s.Where, is, strings.TrimSuffix(d.opts.State, "/"))
	}
}
