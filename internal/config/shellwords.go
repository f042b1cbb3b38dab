package config

import (
	"errors"
	"strings"
)

// ShellWords splits a text into words as a shell does, with quotes and
// backslashes and nothing else: no variable is looked up.
func ShellWords(text string) ([]string, error) {
	var (
		words []string
		word  strings.Builder
		open  bool // a word has begun, though it may be empty
	)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ', '\t', '\n', '\r':
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		case '\'':
			end := strings.IndexByte(text[i+1:], '\'')
			if end < 0 {
				return nil, errors.New("a ' does not close")
			}
			word.WriteString(text[i+1 : i+1+end])
			i, open = i+1+end, true
		case '"':
			n, ok := doubleQuoted(text[i+1:], &word)
			if !ok {
				return nil, errors.New(`a " does not close`)
			}
			i, open = i+n, true
		case '\\':
			if i+1 == len(text) {
				return nil, errors.New(`a \ stands at the end`)
			}
			if i++; text[i] != '\n' {
				word.WriteByte(text[i])
				open = true
			}
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}

// doubleQuoted reads to the closing quote and reports how far that is.
func doubleQuoted(text string, word *strings.Builder) (int, bool) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, true
		case c == '\\' && i+1 < len(text) && strings.IndexByte("\"\\$`\n", text[i+1]) >= 0:
			if i++; text[i] != '\n' {
				word.WriteByte(text[i])
			}
		default:
			word.WriteByte(c)
		}
	}
	return 0, false
}

// split turns a text into the list of its words, so that a command line may be
// written as one.
func (o Object) split(key string) {
	n, ok := o.Lookup(key)
	if !ok || n.Shape != ShapeString {
		return
	}
	words, err := ShellWords(n.Text)
	if err != nil {
		o.Wrong(key, n, "%v; mend the quotes, or write a list", err)
	}
	list := &Node{Shape: ShapeList, Pos: n.Pos}
	for _, w := range words {
		list.Items = append(list.Items, &Node{Shape: ShapeString, Pos: n.Pos, Text: w, From: n.From, Kept: n.Kept})
	}
	o.n.Set(key, list)
}
