package config

import (
	"fmt"
	"path/filepath"
	"strings"
)

// wallPaths reads what a sandbox sees of the host.
func (d *decoder) wallPaths(c object, to *Sandbox) {
	d.wallRoot(c, to)
	d.hostPaths(c, "allow_read", &to.AllowRead)
	d.hostPaths(c, "allow_write", &to.AllowWrite)
	d.hostPaths(c, "deny_read", &to.DenyRead)
	d.notDenied(c, "allow_read", to.AllowRead, to)
	d.notDenied(c, "allow_write", to.AllowWrite, to)
	d.deniedAside(c, to)
	d.keysAside(c, to)
	d.shows(c, to)
	written := make(map[string]bool, len(to.AllowWrite))
	for _, p := range to.AllowWrite {
		written[p] = true
	}
	for i, p := range to.AllowRead {
		if at, where := c.spot("allow_read", i); p != "" && written[p] {
			d.fail(at, "%s: stands in allow_write too, which is for reading as well; remove it here", where)
		}
	}
	if n := c.n.get("root"); n != nil && filepath.IsAbs(to.Root) {
		if i := d.deniedBy(to.Root, to); i >= 0 {
			c.wrong("root", n, "lies in %s of deny_read; remove one of them", c.n.get("deny_read").items[i].shown())
		}
	}
}

// wallRoot reads a word or a path. A path has a slash in it, so that a word that
// was misspelled is not looked for among the files.
func (d *decoder) wallRoot(c object, to *Sandbox) {
	if !c.text("root", &to.Root, RootAllow) {
		return
	}
	n := c.n.get("root")
	switch {
	case to.Root == RootAllow || to.Root == RootHost:
		return
	case !strings.ContainsAny(to.Root, `/\~`):
		hint := "; a path beside the config begins with ./"
		if g := guess(to.Root, []string{RootAllow, RootHost}); g != "" && n.from == "" {
			hint = fmt.Sprintf("; did you mean %q?", g)
		}
		c.wrong("root", n, "got %s, want allow, host, or the path of a directory or an image's archive%s", n.shown(), hint)
		return
	}
	p, wrong := d.hostPath(to.Root)
	switch to.Root = p; {
	case wrong != "":
		c.wrong("root", n, "%s %s", n.shown(), wrong)
	case filepath.Dir(p) == p:
		c.wrong("root", n, "%s is the root of the host; write root: host", n.shown())
	}
}

// hostPaths reads a list of paths of the host.
func (d *decoder) hostPaths(c object, key string, dst *[]string) {
	n := c.n.get(key)
	if n != nil && n.tildeHint() != "" {
		c.wrong(key, n, "want a list of strings, got nothing%s; write %s: [\"~\"]", n.tildeHint(), key)
		return
	}
	if !c.texts(key, dst, "[~/data]") {
		return
	}
	seen := make(map[string]bool, len(n.items))
	for i, item := range n.items {
		if item.missing || len(item.kept) > 0 || len(*dst) != len(n.items) {
			continue // said already
		}
		p, wrong := d.hostPath(item.text)
		if (*dst)[i] = p; wrong == "" {
			switch {
			case seen[p]:
				wrong = "stands twice; keep one"
			case filepath.Dir(p) == p && filepath.IsAbs(p) && key == "allow_read":
				wrong = "is everything there is; name what it needs, or write root: host"
			case filepath.Dir(p) == p && filepath.IsAbs(p):
				wrong = "is everything there is; name the folders"
			}
		}
		seen[p] = true
		if wrong != "" {
			(*dst)[i] = "" // nothing more is said of it
			d.fail(item.pos, "%s.%s[%d]: %s %s", c.path, key, i, item.shown(), wrong)
		}
	}
}

// hostPath makes a path of the host whole, or says what is wrong with it. What a
// shell would have made something else of is refused: taken as it is it would
// name nothing, and what was to be hidden would be seen.
func (d *decoder) hostPath(text string) (whole, wrong string) {
	if strings.TrimSpace(text) == "" {
		return "", "names nothing; name a path, or remove it"
	}
	p := d.res.paths.expandHome(text)
	switch {
	case strings.HasPrefix(p, "~"):
		return "", "is a home that is not known here; write the whole path"
	case strings.HasPrefix(p, "$"):
		return "", "is for a shell to fill in; write ${NAME}, or the whole path"
	case strings.ContainsAny(p, "*?"):
		return "", "is a pattern, and paths are taken as they are; name the file or folder itself"
	}
	return filepath.Clean(d.res.paths.resolve(p)), ""
}

// deniedBy is the entry of deny_read that a path lies in, or -1.
func (d *decoder) deniedBy(p string, to *Sandbox) int {
	for i, dir := range to.DenyRead {
		if dir != "" && p != "" && within(p, dir) {
			return i
		}
	}
	return -1
}

// keysAside complains about a place of keys inside of what may be written to, which
// could not be hidden for good either. It need not be there yet.
func (d *decoder) keysAside(c object, to *Sandbox) {
	for i, dir := range to.AllowWrite {
		if dir == "" {
			continue
		}
		if place, ok := d.keyPlaceBelow(dir); ok {
			at, where := c.spot("allow_write", i)
			d.fail(at, "%s: has ~/%s in it, which no sandbox sees, and which could not be hidden for good there; name the folders beside it instead", where, place)
		}
	}
}

// deniedAside complains about what is hidden inside of what may be written to. What
// hides it holds on to the file as it is: of a new one in its place, which an
// editor of the host makes with every save, the sandbox would see all.
func (d *decoder) deniedAside(c object, to *Sandbox) {
	for i, p := range to.DenyRead {
		for j, dir := range to.AllowWrite {
			if p == "" || dir == "" || p == dir || !within(p, dir) {
				continue // one that is hidden as a whole was spoken of
			}
			at, where := c.spot("deny_read", i)
			from, other := c.spot("allow_write", j)
			line := ""
			if from.line > 0 {
				line = fmt.Sprintf(" on line %d", from.line)
			}
			d.fail(at, "%s: lies in %s%s, and would be seen as soon as the host replaces it there; move it out of that folder, or name only the folders beside it in allow_write", where, strings.TrimPrefix(other, c.path+"."), line)
			break
		}
	}
}

// notDenied complains about what is allowed inside of what is hidden, which would
// stay hidden. The other way round is fine for reading: a part of what is allowed
// is hidden.
func (d *decoder) notDenied(c object, key string, list []string, to *Sandbox) {
	for i, p := range list {
		at, where := c.spot(key, i)
		if j := d.deniedBy(p, to); j >= 0 {
			_, other := c.spot("deny_read", j)
			d.fail(at, "%s: lies in what %s hides, and that wins; remove one of them", where, strings.TrimPrefix(other, c.path+"."))
			continue
		}
		if place, ok := d.keyPlace(p); ok {
			d.fail(at, "%s: no sandbox sees ~/%s, as it holds keys; put what the server needs into another folder", where, place)
		}
	}
}
