package config

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config/keyplaces"
)

// belowHome is a path as keyplaces takes it: relative to a home, with slashes.
func belowHome(home, p string) (rel string, ok bool) {
	if home == "" || !Within(p, home) {
		return "", false
	}
	rel, err := filepath.Rel(home, p)
	return filepath.ToSlash(rel), err == nil
}

// keyPlace is the place of keys of the user's home that a path is, or lies in.
func (d *decoder) keyPlace(p string) (string, bool) {
	rel, ok := belowHome(d.res.paths.home, p)
	if !ok {
		return "", false
	}
	return keyplaces.InHome(rel)
}

// keyPlaceBelow is a place of keys of the user's home in a folder: one that is there, or
// else one that may come.
func (d *decoder) keyPlaceBelow(dir string) (string, bool) {
	home := d.res.paths.home
	rel, ok := belowHome(home, dir)
	if !ok && filepath.IsAbs(home) && Within(home, dir) {
		rel, ok = ".", true
	}
	if !ok {
		return "", false
	}
	places := keyplaces.BelowHome(rel)
	if len(places) == 0 {
		return "", false
	}
	if there, ok := belowHome(home, firstThere(home, places, dir)); ok {
		return there, true
	}
	return places[0], true
}

// KeyPlace is the place of keys of the user's home that a path is, or lies in.
func (o Object) KeyPlace(p string) (string, bool) { return o.d.keyPlace(p) }

// KeyPlaceBelow is a place of keys of the user's home in a folder: one that is there, or
// else one that may come.
func (o Object) KeyPlaceBelow(dir string) (string, bool) { return o.d.keyPlaceBelow(dir) }

// keysNotCopied complains about a template that is a place of keys, or has one in it:
// each session would get a copy.
func (d *decoder) keysNotCopied() {
	for _, t := range d.seeds {
		if !filepath.IsAbs(t.Path) {
			continue
		}
		real := lastOf(linkChain(t.Path))
		for _, p := range slices.Compact([]string{t.Path, real}) {
			if at, in := d.keysAt(p); at != "" {
				is := "holds " + at
				switch {
				case in && at == p:
					is = "is " + at
				case in:
					is = "lies in " + at
				}
				d.fail(t.At, "%s: %s, a place of keys, of which each session would get a copy; name a folder with nothing of it, or copy what the server needs into one of its own", t.Where, is)
				break
			}
		}
	}
}

// keysAt finds a place of keys that a path is, lies in, or has in it. What is in it
// counts where it is there.
func (d *decoder) keysAt(p string) (at string, in bool) {
	for _, home := range d.homesAround(p) {
		rel, ok := belowHome(home, p)
		if place, found := keyplaces.InHome(rel); ok && found {
			return filepath.Join(home, filepath.FromSlash(place)), true
		}
		if !ok {
			rel = "."
		}
		if at := firstThere(home, keyplaces.BelowHome(rel), p); at != "" {
			return at, false
		}
	}
	// Links of the user's own home may lead anywhere.
	if home := d.res.paths.home; filepath.IsAbs(home) {
		for _, place := range keyplaces.OfHome() {
			for _, at := range there(home, place) {
				real := lastOf(linkChain(at))
				if real != at && (Within(p, real) || Within(real, p)) {
					return at, Within(p, real)
				}
			}
		}
	}
	slash := filepath.ToSlash(p)
	if place, ok := keyplaces.InSystem(slash); ok && strings.HasPrefix(place, "/etc/") {
		return place, true
	}
	places := slices.DeleteFunc(keyplaces.BelowSystem(slash), func(place string) bool { return !strings.HasPrefix(place, "/etc/") })
	return firstThere("", places, p), false
}

// homesAround are the homes that a path lies in, or that lie in it.
func (d *decoder) homesAround(p string) []string {
	homes := []string{"/root"}
	if home := d.res.paths.home; filepath.IsAbs(home) {
		homes = append([]string{home}, homes...)
		if real := lastOf(linkChain(home)); real != home {
			homes = append(homes, real)
		}
	}
	for _, dir := range []string{"/home", "/Users"} {
		if rel, err := filepath.Rel(dir, p); err == nil && filepath.IsLocal(rel) && rel != "." {
			first, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
			homes = append(homes, filepath.Join(dir, first))
		} else if Within(dir, p) {
			list, _ := readSome(dir)
			for _, e := range list {
				homes = append(homes, filepath.Join(dir, e.Name()))
			}
		}
	}
	return slices.DeleteFunc(homes, func(home string) bool { return !Within(p, home) && !Within(home, p) })
}

// firstThere is the first of some places below a folder that is there. What is the
// template itself does not count.
func firstThere(top string, places []string, p string) string {
	for _, place := range places {
		for _, at := range there(top, place) {
			if at != p {
				return at
			}
		}
	}
	return ""
}

// there are the paths below a folder that a place of keys stands for and that are there.
func there(top, place string) []string {
	at := filepath.Join(top, filepath.FromSlash(place))
	if !strings.ContainsAny(path.Base(place), "*?[") {
		if _, err := os.Lstat(at); err != nil {
			return nil
		}
		return []string{at}
	}
	var all []string
	list, _ := readSome(filepath.Dir(at))
	for _, e := range list {
		if keyplaces.Is(place, e.Name()) {
			all = append(all, filepath.Join(filepath.Dir(at), e.Name()))
		}
	}
	return all
}

// maxListed bounds what is read of one folder.
const maxListed = 10_000

func readSome(dir string) ([]fs.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(maxListed)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// keysSeen warns of files with keys in the folders that a sandbox is given: a project
// that is named is shown as it is. The state folder is closed in every sandbox.
func (d *decoder) keysSeen(files []ownFile) {
	home := d.res.paths.home
	state := ""
	if filepath.IsAbs(d.opts.State) {
		state = lastOf(linkChain(d.opts.State))
	}
	open := func(dir string) ([]fs.DirEntry, error) {
		if state != "" && Within(lastOf(linkChain(dir)), state) {
			return nil, nil
		}
		return readSome(dir)
	}
	for _, s := range d.visible {
		of := func(list []string, is func(p string) bool) bool { return slices.ContainsFunc(list, is) }
		if info, err := os.Stat(s.Path); err != nil || !info.IsDir() {
			continue
		}
		if filepath.IsAbs(home) && of(s.Read, func(p string) bool { return p != "" && Within(home, p) }) {
			continue // where the home is shown these are hidden
		}
		found := keyplaces.Search{ReadDir: open, Dirs: 200, Most: 100}.Below(s.Path)
		found = slices.DeleteFunc(found, func(at string) bool {
			named := func(p string) bool { return p == at }
			if of(s.Read, named) || of(s.Written, named) || of(s.Denied, func(p string) bool { return p != "" && Within(at, p) }) {
				return true
			}
			return slices.ContainsFunc(files, func(f ownFile) bool { return f.secret && f.path == at }) || d.isKeyPlace(at)
		})
		slices.Sort(found)
		if found = slices.Compact(found); len(found) == 0 {
			continue
		}
		more := ""
		if n := len(found) - 1; n > 0 {
			more = " and " + itoa(n) + " more"
		}
		mend := "hide it with deny_read, or name it in allow_read to say that it is meant"
		if s.Write {
			mend = "move it elsewhere, name only the folders beside it, or name it in allow_read to say that it is meant"
		}
		d.warn(s.At, "%s: the server sees %s%s, which may hold keys; %s", s.Where, found[0], more, mend)
	}
}

func (d *decoder) isKeyPlace(p string) bool {
	_, ok := d.keyPlace(p)
	return ok
}

func lastOf(chain []string) string { return chain[len(chain)-1] }
