package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	ToolPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	notInID     = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// reservedIDs are names that Tine keeps for itself.
var reservedIDs = []string{"tine"}

// checkID says what is wrong with a server's id, or nothing.
func checkID(id, separator string) error {
	switch {
	case !idPattern.MatchString(id):
		return fmt.Errorf("server id %q is not valid; use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first", Clip(id))
	case slices.Contains(reservedIDs, id):
		return fmt.Errorf("server id %q is Tine's own; choose another", id)
	case strings.Contains(id, "__"):
		return fmt.Errorf("server id %q contains \"__\", which separates server and tool; write %q", id, sanitizeID(id, separator))
	case strings.Contains(id, separator):
		return fmt.Errorf("server id %q contains the separator %q; write %q, or set another separator", id, separator, sanitizeID(id, separator))
	case strings.Index(id+separator, separator) != len(id):
		// a_ and __ give a___tool, which would be read as a and _tool.
		return fmt.Errorf("server id %q ends like the separator %q begins; write %q", id, separator, sanitizeID(id, separator))
	}
	return nil
}

// sanitizeID makes a valid id of any name. The same name always gives the same.
func sanitizeID(name, separator string) string {
	id := notInID.ReplaceAllString(name, "-")
	plain := "-"
	if strings.Contains(separator, "-") {
		plain = ""
	}
	// Taking one out may bring two halves of another together.
	for before := ""; before != id; {
		before = id
		id = strings.ReplaceAll(id, "__", "_")
		if separator != "__" {
			id = strings.ReplaceAll(id, separator, plain)
		}
	}
	id = strings.Trim(id, "-_.")
	if len(id) > 64 {
		id = strings.TrimRight(id[:64], "-_.")
	}
	switch {
	case id == "":
		return "server" + idSuffix(name, separator, 4)
	case slices.Contains(reservedIDs, id):
		return id + idSuffix(name, separator, 4)
	}
	return id
}

// idSuffix tells names apart that would become the same id. It depends on the
// name alone, so that it survives a change elsewhere in the file.
func idSuffix(name, separator string, digits int) string {
	mark := "-"
	if strings.Contains(separator, "-") {
		mark = "x"
	}
	sum := sha256.Sum256([]byte(name))
	return mark + hex.EncodeToString(sum[:])[:digits]
}

// idBook gives out ids for names that come from formats without our rules.
type idBook struct {
	separator string
	taken     map[string]bool
}

func newIDBook(names []string, separator string) *idBook {
	b := &idBook{separator: separator, taken: map[string]bool{}}
	// Names that are good as they are keep themselves, wherever they stand.
	for _, n := range names {
		if checkID(n, separator) == nil {
			b.taken[n] = true
		}
	}
	return b
}

func (b *idBook) id(name string) string {
	if checkID(name, b.separator) == nil {
		return name
	}
	id := sanitizeID(name, b.separator)
	if b.taken[id] {
		base := id[:min(len(id), 40)]
		for digits := 4; ; digits += 4 {
			id = base + idSuffix(name, b.separator, digits)
			if !b.taken[id] {
				break
			}
		}
	}
	b.taken[id] = true
	return id
}

// Nearest is the candidate that a typo most likely meant, or nothing.
func Nearest(word string, candidates []string) string {
	best, least := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		if d := Distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// Distance counts insertions, deletions, replacements and swaps of neighbours.
func Distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, prev := []int(nil), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, prev[j]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev = prev, row
	}
	return prev[len(b)]
}
