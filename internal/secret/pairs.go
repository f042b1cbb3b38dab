package secret

import (
	"slices"
	"strings"
)

const (
	maxName      = 64
	maxAuthority = 512
	// placeholderForm is how errors end a placeholder that is to be written: the word
	// stands for a value, while the default of a real placeholder may be a secret.
	placeholderForm = ":-default}"
)

func isName(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' }

// lookPair masks the value of name=value, name: value, "name": "value",
// --name value and <name>value</name> where the name says that it is secret.
func lookPair(f *patternFinder, at int) int {
	s := f.s
	from, end := at, at
	for from > 0 && at-from < maxName && isName(s[from-1]) {
		from--
	}
	for end < len(s) && end-at < maxName && isName(s[end]) {
		end++
	}
	name := s[from:end]
	if strings.HasSuffix(s[:from], "${") && strings.HasPrefix(s[end:], placeholderForm) {
		return end + len(placeholderForm)
	}
	v, sep := valueAfter(s, from, end)
	if sep == 0 {
		return at
	}
	class := ClassOf(name)
	if class == Innocent && sep == '=' && from > 0 && (s[from-1] == '?' || s[from-1] == '&') {
		class = queryClass(name, s[v:])
	}
	if class == Innocent || v >= len(s) {
		return at
	}
	to := v
	switch quote, level := quoteAt(s, v); {
	case sep == '<':
		if to = v + upTo(s[v:], '<'); !strings.HasPrefix(s[to:], "</") {
			return v // a placeholder in a usage text
		}
	case quote != 0:
		v += level + 1
		to = quotedEnd(s, v, quote, level)
		if !class.Hides(s[v:to]) || isReference(s[v:to]) {
			return to
		}
	case s[v] == '[' && v+1 < len(s) && strings.IndexByte("\"'\\", s[v+1]) >= 0:
		v++
		to = v + upTo(s[v:], ']')
	case isReference(strings.TrimRight(word(s[v:]), ",;.")), sep == ':' && s[v-1] == ' ' && (isSentence(name, s[v:]) || opensMap(s[v:])):
		return max(v, end)
	default:
		to = bareEnd(s, from, v, name, sep)
		if !worthMasking(s, from, v, to, name, class, sep) {
			return max(v, end)
		}
	}
	if to <= v {
		return max(v, end)
	}
	return f.cut(v, to)
}

// upTo is the place of c, or the end.
func upTo(s string, c byte) int {
	if i := strings.IndexByte(s, c); i >= 0 {
		return i
	}
	return len(s)
}

// valueAfter finds where the value of a name begins and what parts them: '=', ':',
// ' ' for a flag, '<' for an element, 0 for nothing.
func valueAfter(s string, from, end int) (int, byte) {
	i := end
	for i < len(s) && s[i] == '\\' && i-end < 8 {
		i++
	}
	if i < len(s) && strings.IndexByte("\"'`", s[i]) >= 0 {
		if i++; i < len(s) && s[i] == ']' { // env["TOKEN"] = ...
			i++
		}
	} else if i > end {
		return 0, 0
	} else if i < len(s) && s[i] == '>' && from > 0 && s[from-1] == '<' {
		return i + 1, '<'
	}
	closed := i
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') && i-closed < 8 {
		i++
	}
	if i == len(s) {
		return 0, 0
	}
	sep := s[i]
	switch {
	case sep == '=' || sep == ':':
		for i++; i < len(s) && (s[i] == '=' || s[i] == '>'); { // :=, ==, =>
			i++
		}
	case len(s) > i+2 && sep == '%' && (s[i+1:i+3] == "3D" || s[i+1:i+3] == "3d"):
		return i + 3, '='
	case i > closed && closed == end && s[from] == '-' && sep != '-':
		return i, ' '
	default:
		return 0, 0
	}
	for n := 0; i < len(s) && (s[i] == ' ' || s[i] == '\t') && n < 64; n++ {
		i++
	}
	return i, sep
}

// quoteAt tells a quote at i and how many backslashes escape it.
func quoteAt(s string, i int) (quote byte, level int) {
	for i+level < len(s) && s[i+level] == '\\' && level < 16 {
		level++
	}
	if i+level < len(s) && strings.IndexByte("\"'`", s[i+level]) >= 0 {
		return s[i+level], level
	}
	return 0, 0
}

// quotedEnd is where the backslashes of the closing quote begin; of a text that
// was cut off, its end.
func quotedEnd(s string, i int, quote byte, level int) int {
	run := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '\\':
			run++
			continue
		case quote:
			if run < level {
				return i - run
			}
			// Each further level doubles the backslashes of what is inside.
			if (run-level)%(2*(level+1)) == 0 {
				return i - level
			}
		}
		run = 0
	}
	return len(s)
}

// bareEnd is the end of a value without quotes.
func bareEnd(s string, from, v int, name string, sep byte) int {
	if sep == ':' && (toLineEnd(name) || lineStart(s, from)) {
		return v + lineEnd(s[v:])
	}
	query := from > 0 && (s[from-1] == '?' || s[from-1] == '&')
	end := v
	for end < len(s) {
		c := s[end]
		if c <= ' ' || strings.IndexByte("\"'`&<>\\", c) >= 0 || query && c == '#' {
			break
		}
		if (c == ',' || c == ';' || c == '|') && pairBegins(s[end+1:]) {
			break
		}
		end++
	}
	if isScheme(s[v:end]) && end < len(s) && s[end] == ' ' { // auth=Bearer xyz
		for end++; end < len(s) && s[end] > ' ' && strings.IndexByte("\"'`\\,;", s[end]) < 0; {
			end++
		}
	}
	for end > v && strings.IndexByte(",;)}].", s[end-1]) >= 0 {
		end--
	}
	return end
}

// toLineEnd tells names of headers whose values have spaces.
func toLineEnd(name string) bool {
	low := strings.ToLower(name)
	return strings.HasSuffix(low, "authorization") || strings.HasSuffix(low, "cookie") || strings.HasSuffix(low, "cookies")
}

func lineStart(s string, i int) bool {
	for i > 0 && (s[i-1] == ' ' || s[i-1] == '\t') {
		i--
	}
	return i == 0 || s[i-1] == '\n'
}

func lineEnd(s string) int {
	for i, c := range []byte(s) {
		if c == '\n' || c == '\r' || c == '"' || c == '\'' || c == '`' || c == '\\' {
			return i
		}
	}
	return len(s)
}

// pairBegins reports whether s goes on with name= or name:, so that what stood
// before is a list's separator and no part of the value.
func pairBegins(s string) bool {
	i := 0
	for i < len(s) && (s[i] == ' ' || s[i] == '"' || s[i] == '\'') && i < 4 {
		i++
	}
	begin := i
	for i < len(s) && i < maxName && (isName(s[i]) || s[i] == ' ' && i > begin) {
		i++
	}
	return i > begin && i < len(s) && strings.IndexByte("=:\"'", s[i]) >= 0 || strings.HasPrefix(s, " ")
}

func isScheme(s string) bool {
	switch strings.ToLower(s) {
	case "bearer", "basic", "token", "digest", "negotiate", "apikey":
		return true
	}
	return false
}

var (
	// verbWords begin a sentence about the thing that a colon stands behind.
	verbWords = wordSet(`is are was were has have had must may can cannot can't could should would needs want wants got goes says
		holds contains does do did not neither`)
	// linkWords hold a sentence together. A list of words that make a password has none.
	linkWords = wordSet(`a an the and or nor of to in at on by as from for with without into beside where that which only no
		how this there nothing`)
)

// isSentence tells what is said of a name from its value: "private_key: is no JWK"
// and "private_key: hunter2". Passwords may be words, and a sentence may begin with
// the value ("password: hunter was wrong"), so a sentence is one whose first word is a
// verb. Behind a place like servers.x.auth any other is taken for one, too: what
// follows is said of the place, or of a key below it.
func isSentence(name, s string) bool {
	var words [6]string
	n := 0
	for n < len(words) && s != "" && s[0] > ' ' {
		w := word(s)
		s = strings.TrimPrefix(s[len(w):], " ")
		words[n] = strings.TrimRight(w, ",;.:!?")
		n++
	}
	first := words[0]
	switch {
	case n < 2:
		return false
	case verbWords[first]:
		return true
	case n < 3 || !strings.Contains(name, ".") || !lowerLetters(strings.NewReplacer("_", "", "-", "").Replace(first)):
		return false
	case len(first) >= 16 && !strings.Contains(first, "_"), passwordName(name) && verbWords[words[1]] && !linkWords[first]:
		return false
	}
	return slices.ContainsFunc(words[:n], func(w string) bool { return verbWords[w] || linkWords[w] })
}

// word is what stands before the first space.
func word(s string) string {
	n := min(len(s), maxName)
	for i := range n {
		if s[i] <= ' ' {
			return s[:i]
		}
	}
	return s[:n]
}

// opensMap reports whether a value is a map in YAML, {name: x}, or a list of such:
// its own names say what of it is secret.
func opensMap(s string) bool {
	inner, ok := strings.CutPrefix(strings.TrimPrefix(s, "["), "{")
	name, _, more := strings.Cut(inner[:min(len(inner), maxName)], ": ")
	return ok && more && name != "" && strings.IndexFunc(name, func(c rune) bool { return c >= 0x80 || !isName(byte(c)) }) < 0
}

// isReference reports whether a value only names where the secret is: ${NAME} or
// ${file:PATH}, without a default.
func isReference(s string) bool {
	if len(s) < 4 || !strings.HasPrefix(s, "${") || !strings.HasSuffix(s, "}") {
		return false
	}
	name, file := strings.CutPrefix(s[2:len(s)-1], "file:")
	for _, c := range []byte(name) {
		if !isName(c) && !(file && c == '/') {
			return false
		}
	}
	return true
}

// worthMasking tells a value from prose after a colon and from the empty values of
// programs.
func worthMasking(s string, from, v, to int, name string, class Class, sep byte) bool {
	value := strings.TrimSpace(s[v:to])
	switch strings.ToLower(value[:min(len(value), 16)]) {
	case "", "true", "false", "null", "nil", "<nil>", "none", "undefined", Mask:
		return false
	}
	if strings.Trim(value, "{}[]()|>-,;:.*") == "" || !class.Hides(value) {
		return false
	}
	if sep != ':' || passwordName(name) || strings.ContainsAny(name, "_-") || toLineEnd(name) {
		return true
	}
	// "invalid token: expired" is worth reading.
	spaced := s[v-1] == ' ' || s[v-1] == '\t'
	first, _, more := strings.Cut(value, " ")
	return !spaced || !lowerLetters(strings.TrimRight(first, ",;.:!?")) || !more && !lineStart(s, from) && len(first) >= 16
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "+-.0123456789eE,;)}] ") == ""
}

// queryClass knows names that are secret only in a URL.
func queryClass(name, value string) Class {
	switch low := strings.ToLower(name); {
	case low == "sig" || strings.HasSuffix(low, "signature"):
		return Secret
	case low == "code" && len(value) >= 16 && !strings.ContainsAny(value[:16], "& \n\"'#"): // of an authorization
		return Secret
	case low == "key" || strings.HasSuffix(low, "-credential"):
		return Secret
	}
	return Innocent
}

// lookURL masks user and password of a URL.
func lookURL(f *patternFinder, at int) int {
	from := at + 3
	authority := f.s[from : from+urlPart(f.s[from:], "/?#")]
	user := strings.LastIndexByte(authority, '@')
	if user < 0 {
		// A password with a slash in it ends the authority early; a port doesn't
		// look like one.
		_, word, _ := strings.Cut(authority, ":")
		if word != "" && !isNumber(word) && authority[0] != '[' {
			authority = f.s[from : from+urlPart(f.s[from:], "")]
			user = strings.LastIndexByte(authority, '@')
		}
	}
	scheme := strings.ToLower(f.s[max(0, at-5):at])
	web := strings.HasSuffix(scheme, "http") || strings.HasSuffix(scheme, "https")
	if user <= 0 || !web && strings.IndexByte(authority[:user], ':') < 0 {
		return at // ssh://git@host says nothing
	}
	return f.cut(from, from+user)
}

// urlPart is the length of what may belong to a URL, up to one of stop.
func urlPart(s, stop string) int {
	n := min(len(s), maxAuthority)
	for i, c := range []byte(s[:n]) {
		switch c {
		case '"', '\'', '`', '<', '>', '\\':
			return i
		}
		if c <= ' ' || stop != "" && strings.IndexByte(stop, c) >= 0 {
			return i
		}
	}
	return n
}
