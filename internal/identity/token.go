package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// NewToken makes a static token: 256 random bits behind a prefix by which it can
// be recognized where it should not be.
func NewToken() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
}

// LastYear is the last one in which a token may expire: later times can't be
// stored.
const LastYear = 2261

// tokenPrefix tells our own tokens from an issuer's.
const tokenPrefix = "tine_"

// ValidName reports whether a token may have a principal's name: 1 to 64 letters,
// digits, dots, dashes, underscores and @, the first a letter or digit. Without a
// colon no name is one of an issuer's.
func ValidName(name string) bool {
	if name == "" || len(name) > 64 || strings.ContainsRune("_.@-", rune(name[0])) {
		return false
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.ContainsRune("_.@-", c):
		default:
			return false
		}
	}
	return true
}

// HashToken is how a token is kept: sha256:HEX. A slow hash would add nothing for a
// token that can't be guessed.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hashPrefix + hex.EncodeToString(sum[:])
}

const hashPrefix = "sha256:"

type digest [sha256.Size]byte

func parseHash(s string) (d digest, ok bool) {
	text, ok := strings.CutPrefix(s, hashPrefix)
	if !ok || len(text) != hex.EncodedLen(len(d)) {
		return d, false
	}
	_, err := hex.Decode(d[:], []byte(text))
	return d, err == nil
}

// maxToken bounds the tokens that are hashed and parsed.
const maxToken = 16 << 10

// bearer takes the token out of an Authorization header.
func bearer(authorization string) (string, *Refusal) {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		// Another scheme is not a wrong token: the challenge has no code.
		r := invalid(ReasonMalformed, "only bearer tokens are accepted: send Authorization: Bearer TOKEN")
		r.Code = ""
		return "", r
	}
	token = strings.TrimSpace(token)
	switch {
	case token == "":
		return "", invalid(ReasonMalformed, "the Authorization header has no token: send Authorization: Bearer TOKEN")
	case len(token) > maxToken:
		return "", invalid(ReasonMalformed, "the token is longer than 16 KiB")
	}
	return token, nil
}
