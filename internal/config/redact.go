package config

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/tine-mcp/tine/internal/secret"
)

// mask stands where a secret was.
const mask = secret.Mask

var (
	secretWord = regexp.MustCompile(`(?i)key|token|secret|passw|passphrase|credential|authorization|cookie|signature|private|bearer|(^|[^a-z])(auth|pass|pat|pwd|sig|dsn)([^a-z]|$)`)
	// secretText is what common credentials look like, whatever they are called.
	secretText = regexp.MustCompile(`(?i)^(sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA[0-9A-Z]{12}|AIza[0-9A-Za-z_-]{20}|ya29\.|eyJ[0-9A-Za-z_-]{10})|^(bearer|basic|token)\s+\S`)
	// innocent are names that only speak of a secret.
	innocent   = regexp.MustCompile(`(?i)[_-](file|path|dir|type)$`)
	flagValue  = regexp.MustCompile(`^(--?[A-Za-z0-9][A-Za-z0-9_-]*|[A-Za-z_][A-Za-z0-9_]*)=(.*)$`)
	headerText = regexp.MustCompile(`^([A-Za-z0-9-]+):\s*(.+)$`)
)

// secretName reports whether a variable, header, flag or parameter of this name
// is likely to hold a secret.
func secretName(name string) bool {
	return name != "PWD" && name != "OLDPWD" && !innocent.MatchString(name) && (secretWord.MatchString(name) || secret.ClassOf(name) != secret.Innocent)
}

// shownText is a text without the secrets that are recognized by their form, wherever
// in it they stand.
func shownText(s string) string {
	if secretText.MatchString(s) {
		return mask
	}
	return secret.Masked(RedactURL(s))
}

// RedactURL masks the secrets that a URL may carry: a user's password and every
// query value that looks like a secret. Text that is no URL comes back as it
// is.
func RedactURL(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return s
	}
	u, err := url.Parse(s)
	if err != nil {
		// It can't be taken apart safely, so nothing after the scheme is shown
		// when there may be a user in it.
		if strings.ContainsAny(rest, "@?") {
			return scheme + "://" + mask
		}
		return s
	}
	if u.User != nil {
		_, after, _ := strings.Cut(rest, "@")
		if i := strings.LastIndex(strings.SplitN(rest, "/", 2)[0], "@"); i >= 0 {
			after = rest[i+1:]
		}
		rest = mask + "@" + after
	}
	if u.RawQuery != "" {
		head, query, _ := strings.Cut(rest, "?")
		query, frag, hasFrag := strings.Cut(query, "#")
		rest = head + "?" + redactQuery(query)
		if hasFrag {
			rest += "#" + frag
		}
	}
	return scheme + "://" + rest
}

func redactQuery(q string) string {
	params := strings.Split(q, "&")
	for i, p := range params {
		name, value, ok := strings.Cut(p, "=")
		plain, err := url.QueryUnescape(name)
		if ok && value != "" && (err != nil || secretName(plain) || secretText.MatchString(value)) {
			params[i] = name + "=" + mask
		}
	}
	return strings.Join(params, "&")
}

// Target is the server's command line or URL without secrets, for people.
func (s *Server) Target() string {
	switch {
	case s.URL != "" || s.Driver == "url":
		if s.hidden["url"] {
			return mask
		}
		return shownText(s.URL)
	case s.Builtin != "" || s.Driver == "builtin":
		return "builtin " + s.Builtin
	case s.Front != "":
		return "builtin " + s.Front
	case s.kind != nil:
		return s.kind.target(s)
	}
	return CommandLine(s.ShownText("command", s.Command), s.ShownArgs())
}

func CommandLine(command string, args []string) string {
	words := []string{command}
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`;&|<>()") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// ShownLine is a command line of the entry as it may be shown.
func (s *Server) ShownLine(rel string, args []string) []string { return ShownLine(args, rel, s.hidden) }

// Hide keeps a value of the entry from view, such as docker.image or args.2.
func (s *Server) Hide(rel string) { s.hidden[rel] = true }

// Unhide takes that back.
func (s *Server) Unhide(rel string) { delete(s.hidden, rel) }

// Hidden reports whether a value of the entry must not be shown.
func (s *Server) Hidden(rel string) bool { return s.hidden[rel] }

// ShownText is a value of the entry as it may be shown.
func (s *Server) ShownText(rel, text string) string {
	if s.hidden[rel] && text != "" {
		return mask
	}
	return shownText(text)
}

// ShownArgs masks arguments that came from placeholders or look like secrets.
func (s *Server) ShownArgs() []string { return ShownLine(s.Args, "args", s.hidden) }

func ShownLine(args []string, rel string, hidden map[string]bool) []string {
	out := make([]string, len(args))
	secretNext := false
	for i, a := range args {
		switch {
		case hidden[rel+"."+itoa(i)], secretNext && !strings.HasPrefix(a, "-"):
			out[i] = mask
		default:
			out[i] = redactArg(a)
		}
		secretNext = strings.HasPrefix(a, "-") && !strings.ContainsAny(a, "= \n") && secretName(a)
	}
	return out
}

func redactArg(a string) string {
	if m := flagValue.FindStringSubmatch(a); m != nil {
		if m[2] != "" && (secretName(m[1]) || secretText.MatchString(m[2])) {
			return m[1] + "=" + mask
		}
		return m[1] + "=" + redactArg(m[2]) // --env=NAME=value
	}
	if m := headerText.FindStringSubmatch(a); m != nil && (secretName(m[1]) || secretText.MatchString(m[2])) {
		return m[1] + ": " + mask
	}
	return shownText(a)
}
