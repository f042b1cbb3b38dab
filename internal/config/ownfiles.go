package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ownFile is a file that the gateway takes its orders, its keys or its trust from.
type ownFile struct {
	path   string // absolute
	what   string // for messages
	secret bool   // no sandbox may read it; without it none may write to it
}

// maxOwnPath is about the longest path that Linux, where sandboxes are, can open.
const maxOwnPath = 4000

// Private are the files that no sandbox may see: the config, what it reads with
// ${file:}, env_file and key_file, and the key of tls, each with what it is a link to
// now. Certificates are not among them: they are public, and programs may need them.
func (c *Config) Private() []string {
	var all []string
	for _, f := range c.files {
		if !f.secret {
			continue
		}
		all = append(all, f.path)
		if chain := linkChain(f.path); chain[len(chain)-1] != f.path {
			all = append(all, chain[len(chain)-1])
		}
	}
	return all
}

// recordReads remembers which files are read beside the config, also those that are
// not there yet. A folder that is named by mistake is not read, and hides nothing.
func (d *decoder) recordReads() {
	read := d.opts.ReadFile
	d.opts.ReadFile = func(path string) ([]byte, error) {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			d.own(path, "which the config reads", true)
		}
		return read(path)
	}
}

func (d *decoder) own(path, what string, secret bool) {
	if path == "" || len(path) > maxOwnPath || strings.ContainsRune(path, 0) {
		return // no file can have such a path
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return
	}
	for i, f := range d.files {
		if f.path == abs {
			d.files[i].secret = f.secret || secret
			return
		}
	}
	d.files = append(d.files, ownFile{abs, what, secret})
}

// ownFiles lists the gateway's own files, when all of the config is read.
func (d *decoder) ownFiles(c *Config) {
	included := d.files
	d.files = nil
	d.own(c.Path, "the gateway's config", true)
	for _, f := range included {
		d.own(f.path, f.what, f.secret)
	}
	d.own(c.TLS.Key, "the key of tls", true)
	d.own(c.TLS.Cert, "the certificate of tls", false)
	d.own(c.Telemetry.OTLP.CAFile, "the ca_file of telemetry.otlp", false)
	if c.Auth.OIDC != nil {
		d.own(c.Auth.OIDC.CAFile, "the ca_file of auth.oidc", false)
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		d.own(s.CAFile, "the ca_file of servers."+s.ID, false)
		for _, path := range s.runs() {
			d.own(path, "which servers."+s.ID+" runs outside of a sandbox", false)
		}
	}
	c.files = d.files
}

// runs are the files that a program outside of a sandbox is started from, as far as
// its command line names them.
func (s *Server) runs() []string {
	if s.Command == "" || s.kind != nil {
		return nil
	}
	var out []string
	for i, word := range append([]string{s.Command}, s.Args...) {
		if i == 0 && filepath.Base(word) == word {
			continue // found on the PATH
		}
		if !filepath.IsAbs(word) {
			word = filepath.Join(s.Cwd, word)
		}
		if info, err := os.Stat(word); err == nil && info.Mode().IsRegular() && filepath.IsAbs(word) {
			out = append(out, word)
		}
	}
	return out
}

// Visible is a path that a server sees, and where the config says so.
type Visible struct {
	At    Pos
	Where string
	Path  string
	Write bool
	// What else a sandbox is shown for reading and for writing, and what is hidden from
	// it.
	Read, Written, Denied []string
}

// Shows remembers what a sandbox sees until all of the gateway's own files are known.
func (o Object) Shows(v Visible) { o.d.visible = append(o.d.visible, v) }

// ownFilesAside complains about a sandbox that may write to the gateway's own files,
// and so choose what the gateway runs outside of it. A folder above one is as bad: a
// program that writes there can rename what is in it and put another file in its
// place.
func (d *decoder) ownFilesAside(files []ownFile) {
	for _, s := range d.visible {
		chain := linkChain(s.Path)
		real := chain[len(chain)-1]
		for _, f := range files {
			places := linkChain(f.path)
			end := places[len(places)-1]
			switch {
			case !s.Write && f.secret && (end == real || sameFile(end, real)):
				d.fail(s.At, "%s: is %s, %s, and no sandbox sees that; remove it, or put what the server needs into another file", s.Where, f.path, f.what)
			case !s.Write:
				continue
			case slices.ContainsFunc(places, func(p string) bool { return Within(p, real) || Within(p, s.Path) }):
				d.fail(s.At, "%s: holds %s, %s, which a sandbox that can write to it could use to get out; name a folder below that does not hold it, or move the file elsewhere", s.Where, f.path, f.what)
			default:
				if !d.linkedAside(s, real, f, end) {
					continue
				}
			}
			break // one is enough to say
		}
	}
}

// ownFilesNotCopied complains about a template that holds secrets of the gateway: each
// session would get a copy of them, which its servers and its owner can read. A
// config without tokens has none of the gateway's own.
func (d *decoder) ownFilesNotCopied(c *Config) {
	for _, t := range d.seeds {
		if !filepath.IsAbs(t.Path) {
			continue
		}
		chain := linkChain(t.Path)
		real := chain[len(chain)-1]
		for _, f := range c.files {
			places := linkChain(f.path)
			if !f.secret || !slices.ContainsFunc(places, func(p string) bool { return Within(p, real) }) {
				continue
			}
			if c.withoutTokens(f) {
				d.warn(t.At, "%s: holds %s, %s, of which each session gets a copy; keep secrets out of it, or name a folder that does not hold it", t.Where, f.path, f.what)
				continue
			}
			d.fail(t.At, "%s: holds %s, %s, of which each session would get a copy; name a folder that does not hold it, or move the file elsewhere", t.Where, f.path, f.what)
			break // one is enough to say
		}
	}
}

// withoutTokens reports whether a file is the config itself, and has no tokens in it.
func (c *Config) withoutTokens(f ownFile) bool {
	own, err := filepath.Abs(c.Path)
	return err == nil && c.Path != "" && f.path == own && len(c.Auth.Tokens) == 0
}

// maxLinkedLook bounds how many entries of a folder are looked at to find another
// name of a file.
const maxLinkedLook = 200_000

// linkedAside complains about another name, a hard link, that one of the gateway's
// own files has in what may be written to.
func (d *decoder) linkedAside(s Visible, dir string, f ownFile, end string) bool {
	info, err := os.Lstat(end)
	if err != nil || !info.Mode().IsRegular() || !linked(info) {
		return false
	}
	found, left := "", maxLinkedLook
	_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if left--; left < 0 {
			return filepath.SkipAll
		}
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		if other, err := e.Info(); err == nil && os.SameFile(info, other) {
			found = p
			return filepath.SkipAll
		}
		return nil
	})
	switch {
	case found != "":
		d.fail(s.At, "%s: holds a hard link to %s, %s, which a sandbox that can write to it could use to get out; replace one of them by a copy, or name another folder", s.Where, f.path, f.what)
	case left < 0:
		d.warn(s.At, "%s: %s, %s, has more than one name, and the folder is too large to see whether one of them is in it; make the file anew, so that it has one name", s.Where, f.path, f.what)
	}
	return found != ""
}

func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}
