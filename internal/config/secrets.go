package config

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/secret"
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
	l := SecretList{}
	topTable.secrets(c, Place{hidden: c.hidden}, l)
	for i := range c.Servers {
		l.server(&c.Servers[i])
	}
	return l.sorted()
}

// Secrets is the same for one entry, such as With returns.
func (s *Server) Secrets() []string {
	l := SecretList{}
	l.server(s)
	return l.sorted()
}

type SecretList map[string]bool

func (l SecretList) sorted() []string {
	list := make([]string, 0, len(l))
	for s := range l {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return list
}

// Add adds a value, in pieces where something is filled in when a server starts.
func (l SecretList) Add(s string) {
	for _, piece := range atStartPattern.Split(s, -1) {
		if piece = strings.TrimSpace(piece); len(piece) >= minSecret {
			l[piece] = true
		}
	}
}

// key adds a value that may be a key in PEM.
func (l SecretList) key(s string) {
	l.Add(s)
	if strings.Contains(s, "-----BEGIN") {
		l.lines(s)
	}
}

// lines adds each line of a key: a text that repeats it may break it elsewhere.
func (l SecretList) lines(s string) {
	for line := range strings.Lines(strings.ReplaceAll(s, `\n`, "\n")) {
		if !strings.HasPrefix(line, "-----") {
			l.Add(line)
		}
	}
}

// credential adds a value and, without the name of its scheme, what it carries.
func (l SecretList) credential(s string) {
	l.key(s)
	l.Text(s)
	m := authScheme.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return
	}
	l.Add(m[2])
	if plain, err := base64.StdEncoding.DecodeString(m[2]); err == nil && strings.EqualFold(m[1], "basic") {
		l.Add(string(plain))
		_, password, _ := strings.Cut(string(plain), ":")
		l.Add(password)
	}
}

// Text adds what shownText masks.
func (l SecretList) Text(s string) {
	for _, f := range secret.Find(s) {
		l.key(s[f.From:f.To])
	}
	if RedactURL(s) == s {
		return
	}
	u, err := url.Parse(s)
	if err != nil {
		l.Add(s)
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
				l.Add(authority[:i])
				l.Add(password)
				l.Add(plain)
			} else {
				l.Add(user)
				l.Add(u.User.Username())
			}
		}
	}
	for _, p := range strings.Split(u.RawQuery, "&") {
		if _, value, _ := strings.Cut(p, "="); redactQuery(p) != p {
			l.Add(value)
			if plain, err := url.QueryUnescape(value); err == nil {
				l.Add(plain)
			}
		}
	}
}

// named adds a value that goes by a name which may tell.
func (l SecretList) named(name, value string) {
	if secretName(name) || secretText.MatchString(value) {
		l.credential(value)
		return
	}
	l.Text(value)
}

func (l SecretList) server(s *Server) {
	at := Place{hidden: s.hidden}
	serverTable.secrets(s, at, l)
	if s.kind != nil {
		s.kind.secrets(s, l)
	}
	l.args(s.Args, s.ShownArgs())
	for name, v := range s.Env {
		if at.Below("env." + name).Hidden() {
			l.credential(v)
		}
		l.named(name, v)
	}
	l.settings(at.Below("settings"), "", s.Settings)
	l.settings(at.Below("template"), "", s.detailsValue())
}

func (l SecretList) args(args, shown []string) {
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
func (l SecretList) arg(a string) {
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
	case header != nil && (secretName(header[1]) || secretText.MatchString(header[2])):
		l.credential(header[2])
	case redactArg(a) == a || redactArg(a) == mask: // all of it is hidden
		l.credential(a)
	default:
		l.Text(a)
	}
}

func (l SecretList) settings(at Place, name string, v any) {
	switch v := v.(type) {
	case string:
		if at.Hidden() {
			l.credential(v)
		}
		l.named(name, v)
	case []any:
		for i, item := range v {
			l.settings(at.Below(itoa(i)), name, item)
		}
	case map[string]any:
		for key, item := range v {
			l.settings(at.Below(key), key, item)
		}
	}
}
