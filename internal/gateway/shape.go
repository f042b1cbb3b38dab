package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/wire"
)

// maxName is the longest tool name that model APIs take.
const maxName = 64

// A shape is how one server's things look from outside: which tools are seen,
// under which names.
type shape struct {
	entry  *catalog.Entry
	listed bool   // its things are in the merged view
	bare   bool   // they have no prefix there
	prefix string // "[Title] " before descriptions in the merged view, JSON-escaped
	back   map[string]string
	plain  bool // tools pass as they are
}

// table holds the shapes of one catalog.
type table struct {
	cat     *catalog.Catalog
	sep     string
	shorten bool
	shapes  map[string]*shape
	bare    *shape   // the server without a prefix in the merged view; nil for none
	fronts  []*shape // those whose own names begin with that of the server
}

func newTable(cat *catalog.Catalog) *table {
	t := &table{
		cat: cat, sep: cat.Config.Separator,
		shorten: cat.Config.LongNames == "shorten",
		shapes:  make(map[string]*shape, len(cat.Entries)),
	}
	for _, e := range cat.Entries {
		s := &shape{entry: e, back: make(map[string]string, len(e.Tools.Rename))}
		// Of several instances the first is seen, and what acts on sessions only
		// where the config says so.
		s.listed = e.Ordinal == 0 && (e.Merged || !e.Controls())
		if s.bare = s.listed && e.Controls(); s.bare && t.bare == nil {
			t.bare = s
		}
		if s.listed && e.Front != "" && e.ID == e.Front {
			s.bare = true
			t.fronts = append(t.fronts, s)
		}
		q := wire.Quote("[" + e.Title + "] ")
		s.prefix = string(q[1 : len(q)-1])
		for from, to := range e.Tools.Rename {
			s.back[to] = from
		}
		s.plain = e.ShowsAll() && len(e.Tools.Rename) == 0 && len(e.Tools.Describe) == 0
		t.shapes[e.ID] = s
	}
	return t
}

// outside is a tool's name as clients of the server's own view see it, and
// whether they see it at all.
func (s *shape) outside(name string) (string, bool) {
	if s.plain {
		return name, true
	}
	if !s.entry.Shows(name) {
		return "", false
	}
	if to, ok := s.entry.Tools.Rename[name]; ok {
		return to, true
	}
	// A tool whose own name another one took is hidden rather than confused.
	if _, taken := s.back[name]; taken {
		return "", false
	}
	return name, true
}

// inside is the server's own name of what clients call name.
func (s *shape) inside(name string) (string, bool) {
	if s.plain {
		return name, true
	}
	own := name
	if from, ok := s.back[name]; ok {
		own = from
	} else if _, renamed := s.entry.Tools.Rename[name]; renamed {
		return "", false
	}
	return own, s.entry.Shows(own)
}

// name is a thing's name in the merged view.
func (t *table) name(s *shape, own string) string {
	if s.bare {
		return own
	}
	return t.merged(s.entry.ID, own)
}

// merged is a name with its server before it.
func (t *table) merged(server, name string) string {
	full := server + t.sep + name
	if !t.shorten || len(full) <= maxName {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	// A character that the cut would split goes as a whole.
	return strings.ToValidUTF8(full[:maxName-9], "") + "_" + hex.EncodeToString(sum[:4])
}

// split takes a name of the merged view apart. A shortened name comes back
// with short true: its rest must be looked up.
func (t *table) split(name string) (s *shape, rest string, short bool) {
	server, rest, ok := strings.Cut(name, t.sep)
	if !ok {
		return nil, "", false
	}
	s = t.shapes[server]
	if s == nil {
		return nil, "", false
	}
	return s, rest, t.shorten && len(name) > maxName-4 && len(name) <= maxName && name[len(name)-9] == '_'
}

// unprefixed is the server whose name in the merged view has nothing before it.
func (t *table) unprefixed(name string) *shape {
	for _, s := range t.fronts {
		if rest, ok := strings.CutPrefix(name, s.entry.Front); ok && rest != "" && (rest[0] == '_' || rest[0] == '.') {
			return s
		}
	}
	return t.bare
}

// shadows reports whether a name without a prefix is that of another server's
// thing, which has one: a call would go there.
func (t *table) shadows(name string) *shape {
	if s, _, _ := t.split(name); s != nil && s.listed && !s.bare {
		return s
	}
	return nil
}

// checkMerged refuses a config in which the tools of two servers would have no prefix in
// the merged view: a name that is not known could be meant for either.
func checkMerged(cfg *config.Config) error {
	first := ""
	for i := range cfg.Servers {
		s := &cfg.Servers[i]
		switch {
		case !s.Controls() || !s.Merged || !s.Enabled:
		case first != "":
			return fmt.Errorf("servers.%s.merged: only one server can have its tools without a prefix in the merged view, and %q has; set merged: false on one of them", s.ID, first)
		default:
			first = s.ID
		}
	}
	return nil
}

// Resources have URIs, which two servers may share. In the merged view each
// has its server before it.
const uriScheme = "tine://"

func outURI(server, uri string) string { return uriScheme + server + "/" + uri }

// inURI takes a URI of the merged view apart; ok is false for one that names
// no server.
func (t *table) inURI(uri string) (s *shape, own string, ok bool) {
	rest, ok := strings.CutPrefix(uri, uriScheme)
	if !ok {
		return nil, uri, false
	}
	server, own, ok := strings.Cut(rest, "/")
	if s = t.shapes[server]; !ok || s == nil {
		return nil, uri, false
	}
	return s, own, true
}
