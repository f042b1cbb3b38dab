package wire

import (
	"encoding/base64"
	"strings"
)

const (
	base64Open  = "=?base64?"
	base64Close = "?="
)

// EncodeHeader makes a value fit an HTTP header, in base64 where it has to be.
func EncodeHeader(s string) string {
	if headerSafe(s) {
		return s
	}
	return base64Open + base64.StdEncoding.EncodeToString([]byte(s)) + base64Close
}

func headerSafe(s string) bool {
	if s == "" {
		return true
	}
	if s[0] == ' ' || s[0] == '\t' || s[len(s)-1] == ' ' || s[len(s)-1] == '\t' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return !(strings.HasPrefix(s, base64Open) && strings.HasSuffix(s, base64Close))
}

// DecodeHeader undoes EncodeHeader. It fails on a value that is marked as
// base64 and is not.
func DecodeHeader(s string) (string, bool) {
	in, ok := strings.CutPrefix(s, base64Open)
	if !ok {
		return s, true
	}
	if in, ok = strings.CutSuffix(in, base64Close); !ok {
		return s, true
	}
	out, err := base64.StdEncoding.DecodeString(in)
	return string(out), err == nil
}
