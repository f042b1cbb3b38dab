package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// readEnvFile reads variables from a file of NAME=value lines. Placeholders in
// it are left alone.
func (d *decoder) readEnvFile(path string) (map[string]string, error) {
	data, err := d.opts.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > MaxIncluded {
		return nil, fmt.Errorf("%s is larger than 1 MiB", path)
	}
	vars, err := parseEnvFile(string(data))
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return vars, nil
}

// parseEnvFile accepts what editors accept: comments, export before a name,
// single quotes for literal text, double quotes with escapes, both over several
// lines, a comment after a value. Errors start with the line.
func parseEnvFile(text string) (map[string]string, error) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, errors.New("1: not UTF-8 text")
	}
	vars := map[string]string{}
	text = strings.TrimPrefix(text, "\ufeff")
	for n := 1; text != ""; n++ {
		line, rest, _ := strings.Cut(text, "\n")
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			text = rest
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t\"'") {
			return nil, fmt.Errorf("%d: want NAME=value", n)
		}
		if value = strings.TrimSpace(value); value == "" || value[0] != '\'' && value[0] != '"' {
			if i := strings.Index(value, " #"); i >= 0 {
				value = strings.TrimSpace(value[:i])
			}
			vars[name], text = value, rest
			continue
		}
		open := strings.IndexByte(text, '=') + 1
		open += strings.IndexAny(text[open:], `'"`)
		body, used := quotedValue(text[open:])
		if used < 0 {
			return nil, fmt.Errorf("%d: %s: the quotes do not close", n, name)
		}
		n += strings.Count(text[:open+used], "\n")
		tail, rest, _ := strings.Cut(text[open+used:], "\n")
		if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
			return nil, fmt.Errorf("%d: %s: there is text after the closing quote", n, name)
		}
		vars[name], text = body, rest
	}
	return vars, nil
}

// quotedValue reads the quoted value at the start of s and how long it is with
// its quotes, or -1 when it does not end.
func quotedValue(s string) (string, int) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return b.String(), i + 1
		case s[i] == '\\' && s[0] == '"' && i+1 < len(s):
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
			case 'r':
				b.WriteByte('\r')
			case 't':
				b.WriteByte('\t')
			case '"', '\\', '$':
				b.WriteByte(s[i])
			default:
				b.WriteByte('\\')
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return "", -1
}
