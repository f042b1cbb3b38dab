package config

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// writeYAML writes a map as YAML, with its comments.
func writeYAML(b *strings.Builder, n *Node, indent int) {
	pad := strings.Repeat("  ", indent)
	for _, p := range n.Pairs {
		writeComment(b, p.comment, pad)
		b.WriteString(pad + quoteScalar(p.Key) + ":")
		writeValue(b, p.Value, indent)
	}
}

func writeValue(b *strings.Builder, n *Node, indent int) {
	switch {
	case n.Shape == ShapeMap && len(n.Pairs) > 0 && !n.inline:
		b.WriteString("\n")
		writeYAML(b, n, indent+1)
	case n.Shape == ShapeList && len(n.Items) > 0 && !flat(n):
		b.WriteString("\n")
		pad := strings.Repeat("  ", indent+1)
		for _, item := range n.Items {
			b.WriteString(pad + "- " + flow(item) + "\n")
		}
	default:
		b.WriteString(" " + flow(n) + "\n")
	}
}

// flat reports whether a list is short enough for one line.
func flat(n *Node) bool {
	return len(flow(n)) <= 80
}

// flow writes a value on one line.
func flow(n *Node) string {
	switch n.Shape {
	case ShapeNull:
		return "null"
	case ShapeString:
		return quoteScalar(n.Text)
	case ShapeList:
		items := make([]string, len(n.Items))
		for i, item := range n.Items {
			items[i] = flow(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case ShapeMap:
		items := make([]string, len(n.Pairs))
		for i, p := range n.Pairs {
			items[i] = quoteScalar(p.Key) + ": " + flow(p.Value)
		}
		return "{" + strings.Join(items, ", ") + "}"
	default:
		return n.Text
	}
}

func writeComment(b *strings.Builder, lines []string, pad string) {
	for _, l := range lines {
		// What a comment says may come from outside; it must not end the comment.
		l = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == unicode.ReplacementChar {
				return ' '
			}
			return r
		}, l)
		b.WriteString(strings.TrimRight(pad+"# "+l, " ") + "\n")
	}
}

var (
	plainScalar = regexp.MustCompile(`^(--?[A-Za-z]|[A-Za-z_/~.])[A-Za-z0-9_/.@+=-]*(:[A-Za-z0-9_/.@+=-]+)*$`)
	// Durations, sizes and addresses start with a digit and are strings all the
	// same.
	plainValue = regexp.MustCompile(`^([0-9]+(ms|s|m|h|d|KiB|MiB|GiB|TiB)|[0-9]+h[0-9]+m|[0-9]+m[0-9]+s|[0-9]+(\.[0-9]+){3}:[0-9]+)$`)
	// Words that some YAML reader takes for something else than a string, among
	// them anything that might be a number.
	specialWord = regexp.MustCompile(`^(?i:~|null|true|false|yes|no|on|off|y|n|[-+.]?(inf|nan)|[-+.0-9].*[0-9].*|=|<<)$`)
)

// quoteScalar writes a string so that it is read as the same string again:
// plain where that is certain, else in double quotes.
func quoteScalar(s string) string {
	if plainValue.MatchString(s) || plainScalar.MatchString(s) && !specialWord.MatchString(s) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r > 0xffff:
			b.WriteString(`\U` + hexDigits(r, 8))
		case r < ' ' || r == 0x7f || !unicode.IsPrint(r):
			b.WriteString(`\u` + hexDigits(r, 4))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func hexDigits(r rune, n int) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", n-len(s)) + s
}
