package domains

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// lookup maps names as browsers do. ASCII is not its business: _ and --- are
// used in names, whatever the standard says.
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.CheckHyphens(false))

const (
	maxName  = 253
	maxLabel = 63
)

// Name returns a name as names are compared. What is not one is an error, and
// so is an address in any spelling: 127.1, 0x7f000001 and 2130706433 all are
// what some resolver takes for one.
func Name(s string) (string, error) {
	if len(s) > 4*maxName {
		return "", errors.New("the name is too long")
	}
	if !utf8.ValidString(s) {
		return "", errors.New("the name is not text")
	}
	name := strings.ToLower(s)
	if !ascii(s) {
		var err error
		if name, err = lookup.ToASCII(s); err != nil {
			return "", fmt.Errorf("the name has letters that no name may have: %w", err)
		}
	}
	name = strings.TrimSuffix(name, ".")
	if name == "" {
		return "", errors.New("there is no name in it")
	}
	if len(name) > maxName {
		return "", errors.New("the name is too long")
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel {
			return "", errors.New("a part of the name is empty or too long")
		}
		if i := strings.IndexFunc(label, foreign); i >= 0 {
			return "", fmt.Errorf("names have no %q in them", label[i])
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "", errors.New("no part of a name begins or ends with -")
		}
		last = label
	}
	if numeric(last) {
		return "", errors.New("it ends like an address; write addresses in full, as in 127.0.0.1")
	}
	return name, nil
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func foreign(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}

// numeric reports whether a resolver may take a name with this last label for
// an address.
func numeric(label string) bool {
	digits := "0123456789"
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		label, digits = rest, "0123456789abcdef"
	}
	return strings.Trim(label, digits) == ""
}
