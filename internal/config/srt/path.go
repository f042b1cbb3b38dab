package srt

import (
	"errors"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// A rule is one path or pattern of a list.
type rule struct {
	where string // such as filesystem.denyRead[0]
	at    config.Pos

	path string // whole, as it is spelled: .. and links are left to who follows it
	// Of a pattern, base is the folder that it begins in, and rest matches what follows,
	// which is written as pattern.
	base    string
	rest    *regexp.Regexp
	pattern string
}

// shown is the path in one of the lists of Settings.
func (r rule) shown() string { return path.Clean(r.path) }

const marks = "*?[]"

// fill makes a rule of a path of the file.
func (s *Settings) fill(r *rule, text string, literal bool) error {
	switch {
	case text == "":
		return errors.New("the path is empty")
	case strings.ContainsRune(text, 0):
		return errors.New("the path has a NUL character in it")
	}
	if !literal {
		if cut := strings.TrimSuffix(text, "/**"); cut != text {
			if text = cut; text == "" {
				text = "/"
			}
		}
	}
	whole, err := s.whole(text)
	if err != nil {
		return err
	}
	r.path = whole
	if literal || !strings.ContainsAny(text, marks) {
		return nil
	}
	// What stands before the pattern is a folder, whatever is in its name.
	fixed := text[:strings.IndexAny(text, marks)]
	fixed = fixed[:strings.LastIndexByte(fixed, '/')+1]
	rest := tidy(text[len(fixed):])
	switch {
	case strings.HasSuffix(rest, "/") && (path.IsAbs(text) || text[0] == '~'):
		return errors.New("a pattern that ends in / matches nothing; remove the /")
	case strings.Contains("/"+rest+"/", "/../"):
		return errors.New("a pattern with .. in it matches nothing; write where it leads")
	}
	if fixed == "" {
		fixed = "."
	}
	if r.base, err = s.whole(fixed); err != nil {
		return err
	}
	r.pattern = strings.TrimSuffix(rest, "/")
	r.rest, err = regexp.Compile(`^/` + expression(r.pattern) + `$`)
	if err != nil {
		return errors.New("the pattern can't be read: " + err.Error())
	}
	return nil
}

// tidy takes out of a pattern what is in no real path.
func tidy(pattern string) string {
	for _, twice := range []string{"//", "/./"} {
		for strings.Contains(pattern, twice) {
			pattern = strings.ReplaceAll(pattern, twice, "/")
		}
	}
	return strings.TrimSuffix(pattern, "/.")
}

// whole makes a path absolute.
func (s *Settings) whole(text string) (string, error) {
	if text == "~" || strings.HasPrefix(text, "~/") {
		if !filepath.IsAbs(s.home) {
			return "", errors.New("there is no home folder for ~; write the whole path")
		}
		return s.home + text[1:], nil
	}
	if path.IsAbs(text) || filepath.IsAbs(text) {
		return text, nil
	}
	return s.dir + "/" + text, nil
}

// expression is a pattern as a regular expression.
func expression(pattern string) string {
	var out strings.Builder
	for i := 0; i < len(pattern); {
		rest := pattern[i:]
		switch {
		case strings.HasPrefix(rest, "**/"):
			out.WriteString(`(?s:.*/)?`)
			i += 3
		case strings.HasPrefix(rest, "**"):
			out.WriteString(`(?s:.*)`)
			i += 2
		case rest[0] == '*':
			out.WriteString(`[^/]*`)
			i++
		case rest[0] == '?':
			out.WriteString(`[^/]`)
			i++
		default:
			if set, n := set(rest); n > 0 {
				out.WriteString(set)
				i += n
				continue
			}
			n := 1 + strings.IndexAny(rest[1:], marks)
			if n == 0 {
				n = len(rest)
			}
			out.WriteString(regexp.QuoteMeta(rest[:n]))
			i += n
		}
	}
	return out.String()
}

// set reads the characters in brackets at the beginning of a pattern, and how long they
// are; 0 where the brackets are text. Nothing negates or escapes.
func set(pattern string) (string, int) {
	if pattern[0] != '[' {
		return "", 0
	}
	inner, _, closed := strings.Cut(pattern[1:], "]")
	members := []rune(inner)
	if !closed || len(members) == 0 {
		return "", 0
	}
	var out strings.Builder
	for i := 0; i < len(members); i++ {
		from, to := members[i], members[i]
		if i+2 < len(members) && members[i+1] == '-' {
			to = members[i+2]
			i += 2
		}
		if to < from {
			return "", 0
		}
		out.WriteString(member(from) + "-" + member(to))
	}
	return "[" + out.String() + "]", len(inner) + 2
}

// member is a character as a set of a regular expression has it.
func member(r rune) string {
	if strings.ContainsRune(`\^-]&~[`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// final is where a whole path leads.
func final(p string) string {
	chain := config.LinkChain(p)
	return chain[len(chain)-1]
}

// place is where the name of a path is: links on the way are followed, the last is not.
func place(p string) string {
	p = strings.TrimRight(p, "/")
	dir, name := path.Split(p)
	if name == "" || name == "." || name == ".." {
		return final(p)
	}
	return path.Join(final(dir), name)
}

// depthIn is how far below the root the deepest part of p is that a folder, or what a
// pattern matches below it, has; 0 for none.
func depthIn(p, folder string, rest *regexp.Regexp) int {
	if !config.Within(p, folder) {
		return 0
	}
	if rest == nil {
		return depth(folder)
	}
	for at := p; at != folder; at = path.Dir(at) {
		if rest.MatchString(strings.TrimPrefix(at, strings.TrimSuffix(folder, "/"))) {
			return depth(at)
		}
	}
	return 0
}

// depth counts the names of a path, and one for the root.
func depth(p string) int {
	if p == "/" {
		return 1
	}
	return 1 + strings.Count(p, "/")
}

// mayMatchIn reports whether the pattern, from one of its bases, may match something within
// a folder.
func (r rule) mayMatchIn(folder, base string) bool {
	if config.Within(base, folder) {
		return true
	}
	if !config.Within(folder, base) {
		return false
	}
	names := strings.Split(strings.TrimPrefix(folder[len(base):], "/"), "/")
	for i, part := range strings.Split(r.pattern, "/") {
		if i == len(names) || strings.Contains(part, "**") || strings.Contains(part, "[") { // a set may have / in it
			return true
		}
		if ok, err := regexp.MatchString("^"+expression(part)+"$", names[i]); !ok || err != nil {
			return err != nil
		}
	}
	return false
}

// denies is how deep a rule that denies has p, by any of its names.
func (r rule) denies(p string) int {
	deepest := 0
	for _, at := range []string{path.Clean(r.path), place(r.path), final(r.path)} {
		deepest = max(deepest, depthIn(p, at, nil))
	}
	if r.rest != nil {
		for _, at := range []string{path.Clean(r.base), final(r.base)} {
			deepest = max(deepest, depthIn(p, at, r.rest))
		}
	}
	return deepest
}

// allows is how deep a rule that allows has p, which is where it really is.
func (r rule) allows(p string) int {
	if r.rest != nil {
		return depthIn(p, place(r.base), r.rest)
	}
	return depthIn(p, place(r.path), nil)
}
