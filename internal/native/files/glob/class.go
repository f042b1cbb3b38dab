package glob

import (
	"strings"
	"unicode"
)

// A class is [abc], with ranges and names such as [:digit:].
type class struct {
	ranges  [][2]rune
	tables  []func(rune) bool
	without []func(rune) bool // of names that say what is not in them
	negate  bool
}

func (c *class) has(r rune) bool {
	in := func(tables []func(rune) bool) bool {
		for _, t := range tables {
			if t(r) {
				return true
			}
		}
		return false
	}
	listed := in(c.tables)
	for _, b := range c.ranges {
		listed = listed || b[0] <= r && r <= b[1]
	}
	some := len(c.tables)+len(c.ranges) > 0 && listed != c.negate
	return some || len(c.without) > 0 && in(c.without) == c.negate
}

type named struct {
	in  func(rune) bool
	not bool
}

// className finds the name that text begins with.
func className(text string) (string, named, bool) {
	for _, n := range []struct {
		name string
		named
	}{
		{"[:alnum:]", named{in: tables(unicode.L, unicode.Nl, unicode.Nd)}},
		{"[:alpha:]", named{in: tables(unicode.L, unicode.Nl)}},
		{"[:ascii:]", named{in: func(r rune) bool { return r < 0x80 }}},
		{"[:blank:]", named{in: func(r rune) bool { return r == '\t' || unicode.Is(unicode.Zs, r) }}},
		{"[:cntrl:]", named{in: tables(unicode.Cc)}},
		{"[:digit:]", named{in: tables(unicode.Nd)}},
		{"[:graph:]", named{in: tables(unicode.Z, unicode.C), not: true}},
		{"[:lower:]", named{in: tables(unicode.Ll)}},
		{"[:print:]", named{in: tables(unicode.C), not: true}},
		{"[:punct:]", named{in: tables(unicode.P)}},
		{"[:space:]", named{in: func(r rune) bool { return strings.ContainsRune("\t\r\n\v\f", r) || unicode.Is(unicode.Z, r) }}},
		{"[:upper:]", named{in: tables(unicode.Lu)}},
		{"[:word:]", named{in: tables(unicode.L, unicode.Nl, unicode.Nd, unicode.Pc)}},
		{"[:xdigit:]", named{in: func(r rune) bool { return strings.ContainsRune("0123456789abcdefABCDEF", r) }}},
	} {
		if strings.HasPrefix(text, n.name) {
			return n.name, n.named, true
		}
	}
	return "", named{}, false
}

func tables(t ...*unicode.RangeTable) func(rune) bool {
	return func(r rune) bool { return unicode.In(r, t...) }
}

// parseClass reads a class at the beginning of text and says how much of it that
// is: nothing when it is never closed. A class in which nothing can be spoils
// all that follows.
func parseClass(text []rune) (node, int) {
	c := &class{}
	i := 1
	if i < len(text) && (text[i] == '!' || text[i] == '^') {
		c.negate = true
		i++
	}
	escaping, started, inRange := false, false, false
	var low rune
	for ; i < len(text); i++ {
		r := text[i]
		if r == ']' && started && !escaping {
			return c.done(i+1, len(text))
		}
		started = true
		if r == '\\' && !escaping {
			escaping = true
			continue
		}
		if r == '[' && !escaping {
			if name, n, ok := className(string(text[i:min(i+len("[:xdigit:]"), len(text))])); ok {
				if inRange {
					return never{}, len(text)
				}
				if n.not {
					c.without = append(c.without, n.in)
				} else {
					c.tables = append(c.tables, n.in)
				}
				i += len(name) - 1
				continue
			}
		}
		escaping = false
		next := func(k int) rune {
			if i+k < len(text) {
				return text[i+k]
			}
			return 0
		}
		switch {
		case inRange:
			if r >= low {
				c.ranges = append(c.ranges, [2]rune{low, r})
			}
			inRange = false
		case next(1) == '-' && next(2) == ']':
			c.ranges = append(c.ranges, [2]rune{r, r}, [2]rune{'-', '-'})
			i++
		case next(1) == '-':
			low, inRange = r, true
			i++
		default:
			c.ranges = append(c.ranges, [2]rune{r, r})
		}
	}
	return nil, 0
}

func (c *class) done(used, all int) (node, int) {
	switch {
	case len(c.ranges)+len(c.tables)+len(c.without) == 0:
		return never{}, all
	// [x] is a way to write x where it would be magic.
	case len(c.ranges) == 1 && len(c.tables)+len(c.without) == 0 && !c.negate && c.ranges[0][0] == c.ranges[0][1]:
		return char(c.ranges[0][0]), used
	}
	return c, used
}
