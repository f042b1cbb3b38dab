package secret

import (
	"bytes"
	"strings"
)

// A Class says what a name tells of its value.
type Class uint8

// The classes of names.
const (
	Innocent Class = iota
	Secret
	SecretText // a secret if it is text; a number is a count or an index
)

// Hides reports whether a value under such a name is a secret.
func (c Class) Hides(value string) bool {
	return c == Secret || c == SecretText && !isNumber(value)
}

// Words of names. A name is cut into words at _ - . and at changes of case.
var (
	// strongWords make a name secret wherever they stand in it.
	strongWords = wordSet(`password passwords passwd passphrase passcode pwd secret secrets token apikey apikeys
		authorization cookie cookies credential credentials creds cred bearer jwt dsn otp totp
		accesskey secretkey privatekey signingkey authkey`)
	// strongEnds make a word strong that is written together, like accesstoken.
	strongEnds = []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "secretkey",
		"accesskey", "privatekey", "credential", "credentials"}
	// innocentLast are last words of names that only speak of a secret.
	innocentLast = wordSet(`file files filename path paths dir directory folder type types kind count counts counter
		limit limits length len size url uri urls uris endpoint endpoints name names id ids expiry expires expiration
		at in ttl age seconds ms time timestamp date policy policies usage used budget details field fields required
		enabled supported method methods mode hint format ref refs index algorithm alg algorithms env var server servers
		provider providers status state error errors rate ratio price cost version scope scopes domain style strategy
		pattern regex schema description title label window`)
	innocentFirst = wordSet(`max min num total has is count`)
	// beforeToken and beforeTokens make a token something that is passed around, or
	// a piece of text.
	beforeToken  = wordSet(`page next progress continuation pagination sync cursor resume cancellation cancel pad eos bos unk mask`)
	beforeTokens = wordSet(`input output prompt completion cached cache reasoning thinking stop special audio image text
		max min used remaining new available estimated context`)
	// beforeKey make a key something to look up or to press.
	beforeKey = wordSet(`primary foreign sort partition group public cache map hash index object dict unique row column
		config item field arrow short hot sorting grouping routing lookup i18n translation message parent child registry
		storage redis s3 bucket host known value idempotency dedup deduplication event dictionary json yaml property`)
	// passWords end in pass and mean none.
	passWords = wordSet(`compass bypass encompass overpass underpass surpass trespass`)
	// beforeKeyAlways make a key secret, with any other words.
	beforeKeyAlways = wordSet(`api private secret access signing encryption master auth ssh`)
)

func wordSet(words string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// ClassOf says whether a key, header, parameter, variable or flag of this name
// holds a secret.
func ClassOf(name string) Class {
	if name == "PWD" || name == "OLDPWD" {
		return Innocent // the shell's working directory
	}
	var buf [64]byte
	var words [12][]byte
	list := splitName(name, buf[:], words[:0])
	n := len(list)
	if n == 0 {
		return Innocent
	}
	last := list[n-1]
	prev := func(i int) []byte {
		if i == 0 {
			return nil
		}
		return list[i-1]
	}
	if innocentLast[string(last)] {
		if string(last) == "id" && string(prev(n-1)) == "secret" {
			return Secret
		}
		return Innocent
	}
	if n > 1 && innocentFirst[string(list[0])] {
		return Innocent
	}
	for i, w := range list {
		switch word := strongWord(w); {
		case word == "token" && (beforeToken[string(prev(i))] || joinedAfter(w, "token", beforeToken)):
			return Innocent
		case word != "":
			return Secret
		case string(w) == "key" && beforeKeyAlways[string(prev(i))]:
			return Secret
		}
	}
	switch string(last) {
	case "auth":
		return Secret
	case "pat":
		if n > 1 {
			return Secret
		}
	case "tokens":
		if n == 1 || !beforeTokens[string(prev(n-1))] {
			return SecretText
		}
	case "key", "keys":
		if n > 1 && !beforeKey[string(prev(n-1))] {
			return SecretText
		}
	}
	if bytes.HasSuffix(last, []byte("pass")) && !passWords[string(last)] { // DB_PASS, dbpass
		return SecretText
	}
	return Innocent
}

// strongWord is the strong word that w is or ends with.
func strongWord(w []byte) string {
	if strongWords[string(w)] {
		return string(w)
	}
	for _, end := range strongEnds {
		if len(w) > len(end) && string(w[len(w)-len(end):]) == end {
			return end
		}
	}
	return ""
}

func joinedAfter(w []byte, end string, set map[string]bool) bool {
	return len(w) > len(end) && (set[string(w[:len(w)-len(end)])] || strings.HasPrefix(string(w), "nextpage"))
}

// passwordName reports whether a secret name is one whose value people choose,
// which may then be a plain word.
func passwordName(name string) bool {
	low := strings.ToLower(name)
	return strings.Contains(low, "pass") || strings.Contains(low, "pwd")
}

// splitName cuts a name into lower-case words without digits at their ends. Of a
// very long name the end is enough.
func splitName(name string, buf []byte, words [][]byte) [][]byte {
	if len(name) > len(buf) {
		name = name[len(name)-len(buf):]
	}
	start := 0
	flush := func(end int) {
		w := buf[start:end]
		for len(w) > 1 && w[len(w)-1] >= '0' && w[len(w)-1] <= '9' {
			w = w[:len(w)-1]
		}
		if len(w) > 0 {
			if len(words) == cap(words) {
				words = append(words[:0], words[1:]...)
			}
			words = append(words, w)
		}
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		upper := c >= 'A' && c <= 'Z'
		switch {
		case !isAlnum(c) && c < 0x80:
			flush(i)
			start = i + 1
			continue
		case upper && i > start:
			before := name[i-1]
			lowerNext := i+1 < len(name) && name[i+1] >= 'a' && name[i+1] <= 'z'
			if before < 'A' || before > 'Z' || lowerNext {
				flush(i)
				start = i
			}
		}
		if upper {
			c |= 0x20
		}
		buf[i] = c
	}
	flush(len(name))
	return words
}
