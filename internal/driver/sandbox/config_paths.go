package sandbox

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// wallPaths checks what a sandbox sees of the host.
func wallPaths(c config.Object, to *Config) {
	notDenied(c, "allow_read", to.AllowRead, to)
	notDenied(c, "allow_write", to.AllowWrite, to)
	deniedAside(c, to)
	keysAside(c, to)
	showsPaths(c, to)
	written := make(map[string]bool, len(to.AllowWrite))
	for _, p := range to.AllowWrite {
		written[p] = true
	}
	for i, p := range to.AllowRead {
		if at, where := c.Spot("allow_read", i); p != "" && written[p] {
			c.Fail(at, "%s: stands in allow_write too, which is for reading as well; remove it here", where)
		}
	}
	if n := c.Get("root"); n != nil && filepath.IsAbs(to.Root) {
		if i := deniedBy(to.Root, to); i >= 0 {
			c.Wrong("root", n, "lies in %s of deny_read; remove one of them", c.Get("deny_read").Items[i].Shown())
		}
	}
}

// wallRoot reads a word or a path. A path has a slash in it, so that a word that
// was misspelled is not looked for among the files.
func wallRoot(c config.Object, key string, dst *string) bool {
	if !c.Text(key, dst, RootAllow) {
		return false
	}
	n := c.Get(key)
	switch {
	case *dst == RootAllow || *dst == RootHost:
		return true
	case !strings.ContainsAny(*dst, `/\~`):
		hint := "; a path beside the config begins with ./"
		if g := config.Guess(*dst, []string{RootAllow, RootHost}); g != "" && n.From == "" {
			hint = fmt.Sprintf("; did you mean %q?", g)
		}
		c.Wrong(key, n, "got %s, want allow, host, or the path of a directory or an image's archive%s", n.Shown(), hint)
		return false
	}
	p, wrong := hostPath(c, *dst)
	switch *dst = p; {
	case wrong != "":
		c.Wrong(key, n, "%s %s", n.Shown(), wrong)
	case filepath.Dir(p) == p:
		c.Wrong(key, n, "%s is the root of the host; write root: host", n.Shown())
	}
	return true
}

// hostPaths is a list of paths of the host.
var hostPaths = config.Texts("[~/data]").As("list of paths").Unless("none").By(readHostPaths)

func readHostPaths(c config.Object, key string, dst *[]string) bool {
	n := c.Get(key)
	if n != nil && n.TildeHint() != "" {
		c.Wrong(key, n, "want a list of strings, got nothing%s; write %s: [\"~\"]", n.TildeHint(), key)
		return false
	}
	if !c.Texts(key, dst, "[~/data]") {
		return false
	}
	seen := make(map[string]bool, len(n.Items))
	for i, item := range n.Items {
		if item.Missing || len(item.Kept) > 0 || len(*dst) != len(n.Items) {
			continue // reported already
		}
		p, wrong := hostPath(c, item.Text)
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
			(*dst)[i] = "" // nothing more is reported of it
			c.Fail(item.Pos, "%s.%s[%d]: %s %s", c.Path, key, i, item.Shown(), wrong)
		}
	}
	return true
}

// hostPath makes a path of the host whole, or says what is wrong with it. What a
// shell would have made something else of is refused: taken as it is it would
// name nothing, and what was to be hidden would be seen.
func hostPath(c config.Object, text string) (whole, wrong string) {
	if strings.TrimSpace(text) == "" {
		return "", "names nothing; name a path, or remove it"
	}
	p := c.ExpandHome(text)
	switch {
	case strings.HasPrefix(p, "~"):
		return "", "is a home that is not known here; write the whole path"
	case strings.HasPrefix(p, "$"):
		return "", "is for a shell to fill in; write ${NAME}, or the whole path"
	case strings.ContainsAny(p, "*?"):
		return "", "is a pattern, and paths are taken as they are; name the file or folder itself"
	}
	return filepath.Clean(c.Resolve(p)), ""
}

// deniedBy is the entry of deny_read that a path lies in, or -1.
func deniedBy(p string, to *Config) int {
	for i, dir := range to.DenyRead {
		if dir != "" && p != "" && config.Within(p, dir) {
			return i
		}
	}
	return -1
}

// keysAside complains about a place of keys inside of what may be written to, which
// could not be hidden for good either. It need not be there yet.
func keysAside(c config.Object, to *Config) {
	for i, dir := range to.AllowWrite {
		if dir == "" {
			continue
		}
		if place, ok := c.KeyPlaceBelow(dir); ok {
			at, where := c.Spot("allow_write", i)
			c.Fail(at, "%s: has ~/%s in it, which no sandbox sees, and which could not be hidden for good there; name the folders beside it instead", where, place)
		}
	}
}

// deniedAside complains about what is hidden inside of what may be written to. What
// hides it holds on to the file as it is: of a new one in its place, which an
// editor of the host makes with every save, the sandbox would see all.
func deniedAside(c config.Object, to *Config) {
	for i, p := range to.DenyRead {
		for j, dir := range to.AllowWrite {
			if p == "" || dir == "" || p == dir || !config.Within(p, dir) {
				continue // a path that is hidden as a whole was reported
			}
			at, where := c.Spot("deny_read", i)
			from, other := c.Spot("allow_write", j)
			line := ""
			if from.Line > 0 {
				line = fmt.Sprintf(" on line %d", from.Line)
			}
			c.Fail(at, "%s: lies in %s%s, and would be seen as soon as the host replaces it there; move it out of that folder, or name only the folders beside it in allow_write", where, strings.TrimPrefix(other, c.Path+"."), line)
			break
		}
	}
}

// notDenied complains about what is allowed inside of what is hidden, which would
// stay hidden. The other way round is fine for reading: a part of what is allowed
// is hidden.
func notDenied(c config.Object, key string, list []string, to *Config) {
	for i, p := range list {
		at, where := c.Spot(key, i)
		if j := deniedBy(p, to); j >= 0 {
			_, other := c.Spot("deny_read", j)
			c.Fail(at, "%s: lies in what %s hides, and that wins; remove one of them", where, strings.TrimPrefix(other, c.Path+"."))
			continue
		}
		if place, ok := c.KeyPlace(p); ok {
			c.Fail(at, "%s: no sandbox sees ~/%s, as it holds keys; put what the server needs into another folder", where, place)
		}
	}
}

// showsPaths tells what a sandbox sees of this machine.
func showsPaths(c config.Object, to *Config) {
	for _, list := range []struct {
		key   string
		paths []string
	}{{"allow_read", to.AllowRead}, {"allow_write", to.AllowWrite}} {
		for i, p := range list.paths {
			if filepath.IsAbs(p) {
				at, where := c.Spot(list.key, i)
				c.Shows(config.Visible{At: at, Where: where, Path: p, Write: list.key == "allow_write", Read: to.AllowRead, Written: to.AllowWrite, Denied: to.DenyRead})
			}
		}
	}
}
