package packages

import (
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
)

const masked = "***"

// The shapes of secrets in what npm, pip, uv and git print.
var (
	secretUser  = regexp.MustCompile(`(://)[^/\s@'"]+@`)
	secretPair  = regexp.MustCompile(`(?i)((?:_authtoken|_auth|_password|password|passwd|token|secret|api[_-]?key|access[_-]?key)["']?\s*[=:]\s*["']?)[^\s"'&,;]+`)
	secretLogin = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}`)
	secretShape = regexp.MustCompile(`\b(?:npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})`)
)

// mask hides what looks like a secret.
func mask(s string) string {
	s = secretUser.ReplaceAllString(s, "${1}"+masked+"@")
	s = secretPair.ReplaceAllString(s, "${1}"+masked)
	s = secretLogin.ReplaceAllString(s, "${1} "+masked)
	return secretShape.ReplaceAllString(s, masked)
}

// secrets are values that must not be printed, whatever they look like.
type secrets []string

func (s secrets) mask(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, masked)
	}
	return mask(text)
}

// add takes a value as a secret. Short ones would mask half of a text.
func (s *secrets) add(value string) {
	value = strings.Trim(value, `"' `)
	if len(value) >= 5 && !strings.HasPrefix(value, "${") && !slices.Contains(*s, value) {
		*s = append(*s, value)
		// Longer ones first, so that none is left in pieces.
		slices.SortFunc(*s, func(a, b string) int { return len(b) - len(a) })
	}
}

// addURLs takes the passwords of URLs in a text. A user alone may be a token.
func (s *secrets) addURLs(text string) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n\r\"'=,", r) }) {
		u, err := url.Parse(strings.TrimPrefix(word, "git+"))
		if err != nil || u.User == nil {
			continue
		}
		if password, ok := u.User.Password(); ok {
			s.add(password)
		} else {
			s.add(u.User.Username())
		}
	}
}

var (
	configSecret = regexp.MustCompile(`(?im)^\s*[^#;\n]*(?:_authtoken|_auth|_password|password|token)\s*[=\s]\s*(\S+)`)
	configVar    = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\??\}`)
)

// addConfig takes the secrets of a file such as .npmrc, pip.conf or .netrc, and
// returns the variables that it refers to.
func (s *secrets) addConfig(path string) (vars []string) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 256<<10)
	n, _ := io.ReadFull(f, b)
	text := string(b[:n])
	for _, m := range configSecret.FindAllStringSubmatch(text, -1) {
		s.add(m[1])
	}
	s.addURLs(text)
	for _, m := range configVar.FindAllStringSubmatch(text, -1) {
		vars = append(vars, m[1])
	}
	return vars
}

// secretName reports whether a variable of this name holds a secret.
func secretName(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"TOKEN", "AUTH", "PASSWORD", "SECRET", "_KEY", "CREDENTIAL"}, func(part string) bool { return strings.Contains(name, part) })
}
