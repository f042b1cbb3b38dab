package config

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// minSecret is the length below which hiding a value wherever it stands would
// tear holes into everything else.
const minSecret = 6

// plainHeader are headers that tell nothing but what a client is like.
var plainHeader = regexp.MustCompile(`(?i)^(accept.*|content-.*|user-agent|cache-control|origin|referer|from|traceparent|tracestate|mcp-.*)$`)

var authScheme = regexp.MustCompile(`(?i)^(bearer|basic|token)\s+(\S.*)$`)

// Secrets returns every value of the config that must never be shown, longest
// first, so that one that holds another is found before it.
func (c *Config) Secrets() []string {
	l := secretList{}
	topTable.secrets(c, where{hidden: c.hidden}, l)
	for i := range c.Servers {
		l.server(&c.Servers[i])
	}
	return l.sorted()
}

// Secrets is the same for one entry, such as With returns.
func (s *Server) Secrets() []string {
	l := secretList{}
	l.server(s)
	return l.sorted()
}

type secretList map[string]bool

func (l secretList) sorted() []string {
	list := make([]string, 0, len(l))
	for s := range l {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return list
}

// add adds a value, in pieces where something is filled in when a server starts.
func (l secretList) add(s string) {
	for _, piece := range atStartPattern.Split(s, -1) {
		if piece = strings.TrimSpace(piece); len(piece) >= minSecret {
			l[piece] = true
		}
	}
}

// credential adds a value and, without the name of its scheme, what it carries.
func (l secretList) credential(s string) {
	l.add(s)
	l.url(s)
	m := authScheme.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return
	}
	l.add(m[2])
	if plain, err := base64.StdEncoding.DecodeString(m[2]); err == nil && strings.EqualFold(m[1], "basic") {
		l.add(string(plain))
		_, password, _ := strings.Cut(string(plain), ":")
		l.add(password)
	}
}

// url adds what RedactURL masks.
func (l secretList) url(s string) {
	if RedactURL(s) == s {
		return
	}
	u, err := url.Parse(s)
	if err != nil {
		l.add(s)
		return
	}
	if u.User != nil {
		_, authority, _ := strings.Cut(s, "//")
		if i := strings.IndexAny(authority, "/?#"); i >= 0 {
			authority = authority[:i]
		}
		if i := strings.LastIndex(authority, "@"); i >= 0 {
			user, password, both := strings.Cut(authority[:i], ":")
			if plain, _ := u.User.Password(); both {
				l.add(authority[:i])
				l.add(password)
				l.add(plain)
			} else {
				l.add(user)
				l.add(u.User.Username())
			}
		}
	}
	for _, p := range strings.Split(u.RawQuery, "&") {
		if _, value, _ := strings.Cut(p, "="); redactQuery(p) != p {
			l.add(value)
			if plain, err := url.QueryUnescape(value); err == nil {
				l.add(plain)
			}
		}
	}
}

// named adds a value that goes by a name which may tell.
func (l secretList) named(name, value string) {
	if secretName(name) || secretText.MatchString(value) {
		l.credential(value)
		return
	}
	l.url(value)
}

func (l secretList) server(s *Server) {
	at := where{hidden: s.hidden}
	serverTable.secrets(s, at, l)
	if s.kind != nil {
		s.kind.secrets(s, l)
	}
	l.args(s.Args, s.shownArgs())
	for name, v := range s.Env {
		if at.below("env." + name).is() {
			l.credential(v)
		}
		l.named(name, v)
	}
	l.settings(at.below("settings"), "", s.Settings)
	l.settings(at.below("template"), "", s.detailsValue())
}

func (l secretList) args(args, shown []string) {
	for i, a := range args {
		if shown[i] == mask {
			l.credential(a)
		}
		if shown[i] != a {
			l.arg(a)
		}
	}
}

// arg adds what an argument carries that is not shown as it is.
func (l secretList) arg(a string) {
	flag, header := flagValue.FindStringSubmatch(a), headerText.FindStringSubmatch(a)
	switch {
	case flag != nil && secretName(flag[1]):
		l.credential(flag[2])
	case flag != nil && redactArg(flag[2]) != flag[2]:
		l.arg(flag[2])
	case flag != nil && redactArg(a) == a: // all of it is hidden
		l.credential(flag[2])
	case flag != nil:
		l.named(flag[1], flag[2])
	case strings.Contains(a, "://"):
		l.url(a)
	case header != nil:
		l.credential(header[2])
	default:
		l.credential(a)
	}
}

func (l secretList) settings(at where, name string, v any) {
	switch v := v.(type) {
	case string:
		if at.is() {
			l.credential(v)
		}
		l.named(name, v)
	case []any:
		for i, item := range v {
			l.settings(at.below(itoa(i)), name, item)
		}
	case map[string]any:
		for key, item := range v {
			l.settings(at.below(key), key, item)
		}
	}
}
