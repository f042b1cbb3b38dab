package telemetry

import (
	"strings"

	"github.com/tine-mcp/tine/internal/secret"
)

// treatment is how a value in JSON is masked.
type treatment uint8

const (
	byContent  treatment = iota // what looks like a secret
	everything                  // all texts and numbers in it
	texts                       // all texts in it
	schema                      // it only describes a secret; examples are masked
)

// findJSON lists the cuts of a valid JSON document. It works on the raw bytes:
// numbers, escapes and spaces that are not masked stay as they are.
func (r *Redactor) findJSON(s string, nested int) []cut {
	w := jsonWalk{r: r, s: s, known: r.known.Load(), nested: nested}
	w.value(w.space(0), byContent, "")
	return w.cuts
}

type jsonWalk struct {
	r      *Redactor
	s      string
	known  *knownValues
	nested int
	cuts   []cut
}

func (w *jsonWalk) space(i int) int {
	for i < len(w.s) && (w.s[i] == ' ' || w.s[i] == '\n' || w.s[i] == '\t' || w.s[i] == '\r') {
		i++
	}
	return i
}

// stringEnd is the place after the closing quote of the string that begins at i.
func (w *jsonWalk) stringEnd(i int) int {
	for i++; ; i++ {
		if i += strings.IndexByte(w.s[i:], '"'); unescaped(w.s, i) {
			return i + 1
		}
	}
}

// value treats the value that begins at i and returns where it ends. key is the
// name it stands under.
func (w *jsonWalk) value(i int, t treatment, key string) int {
	switch c := w.s[i]; {
	case c == '{':
		return w.object(i, t, key)
	case c == '[':
		return w.array(i, t)
	case c == '"':
		end := w.stringEnd(i)
		if t == everything || t == texts {
			w.maskString(i, end)
		} else {
			w.text(i+1, end-1)
		}
		return end
	case c == '-' || c >= '0' && c <= '9':
		end := i
		for end < len(w.s) && strings.IndexByte("+-.0123456789eE", w.s[end]) >= 0 {
			end++
		}
		if t == everything || w.isKnown(w.s[i:end]) {
			w.cuts = append(w.cuts, cut{i, end, `"` + mask + `"`})
		}
		return end
	default: // true, false, null
		for i < len(w.s) && w.s[i] >= 'a' && w.s[i] <= 'z' {
			i++
		}
		return i
	}
}

func (w *jsonWalk) isKnown(number string) bool {
	return w.known != nil && len(w.known.scan(number, nil)) > 0
}

func (w *jsonWalk) maskString(from, end int) {
	if end-from > 2 {
		w.cuts = append(w.cuts, cut{from + 1, end - 1, mask})
	}
}

func (w *jsonWalk) object(i int, t treatment, under string) int {
	var named, valued span // of {"name": "API_KEY", "value": "..."}
	for i = w.space(i + 1); w.s[i] != '}'; {
		keyEnd := w.stringEnd(i)
		key := w.decoded(i+1, keyEnd-1)
		w.text(i+1, keyEnd-1)
		from := w.space(w.space(keyEnd) + 1) // past the colon
		end := w.value(from, w.member(t, under, key, from), key)
		switch key {
		case "name", "key", "header", "Name", "Key":
			named = span{from, end}
		case "value", "Value":
			valued = span{from, end}
		}
		if i = w.space(end); w.s[i] == ',' {
			i = w.space(i + 1)
		}
	}
	if named.to > 0 && valued.to > 0 && w.s[named.from] == '"' {
		if t := treatmentOf(w.decoded(named.from+1, named.to-1)); t != byContent {
			w.value(valued.from, t, "")
		}
	}
	return i + 1
}

type span struct{ from, to int }

// member is the treatment of an object's member by its name.
func (w *jsonWalk) member(t treatment, under, key string, at int) treatment {
	switch t {
	case everything, texts:
		return t
	case schema:
		switch key {
		case "default", "const", "example", "examples", "enum":
			return everything
		}
	}
	of := treatmentOf(key)
	if of != byContent && under == "properties" && w.s[at] == '{' {
		return schema
	}
	return of
}

func treatmentOf(name string) treatment {
	switch secret.ClassOf(name) {
	case secret.Secret:
		return everything
	case secret.SecretText:
		return texts
	}
	return byContent
}

func (w *jsonWalk) array(i int, t treatment) int {
	flagged := false // the element before was a flag like --token
	for i = w.space(i + 1); w.s[i] != ']'; {
		of := t
		if flagged && of == byContent && w.s[i] == '"' && !strings.HasPrefix(w.s[i+1:], "-") {
			of = everything
		}
		end := w.value(i, of, "")
		flagged = w.s[i] == '"' && end-i < 64 && w.s[i+1] == '-' && secret.ClassOf(w.s[i+1:end-1]) != secret.Innocent
		if i = w.space(end); w.s[i] == ',' {
			i = w.space(i + 1)
		}
	}
	return i + 1
}

// decoded is the text of the string between the quotes, as far as it can be a name.
func (w *jsonWalk) decoded(from, to int) string {
	raw := w.s[from:to]
	if len(raw) > 512 || strings.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return plainView(raw).decode(escapes).text
}

// text looks for secrets in the string between the quotes.
func (w *jsonWalk) text(from, to int) {
	raw := w.s[from:to]
	if strings.IndexByte(raw, '\\') < 0 {
		w.keep(w.r.find(raw, w.nested+1), func(a, b int) (int, int) { return from + a, from + b })
		return
	}
	if len(raw) <= wholeText {
		v := plainView(raw).decode(escapes)
		w.keep(w.r.find(v.text, w.nested+1), func(a, b int) (int, int) {
			a, b = v.place(a, b)
			return from + a, from + b
		})
		return
	}
	// Too long to be decoded at once: patterns know escaped quotes, known values
	// are decoded in pieces.
	w.keep(findForms(raw, w.known.find(raw, nil)), func(a, b int) (int, int) {
		a, b = wholeEscapes(raw, a, b)
		return from + a, from + b
	})
}

// keep takes cuts of a string's text over into the document.
func (w *jsonWalk) keep(cuts []cut, place func(from, to int) (int, int)) {
	for _, c := range cuts {
		c.from, c.to = place(c.from, c.to)
		if strings.ContainsAny(c.with, `"\`) {
			c.with = strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(c.with)
		}
		w.cuts = append(w.cuts, c)
	}
}

// wholeEscapes widens a piece of a JSON string so that it cuts no escape in two.
func wholeEscapes(raw string, from, to int) (int, int) {
	for _, at := range []*int{&from, &to} {
		// An escape that reaches over the place begins at most five bytes before.
		for i := max(0, *at-5); i < *at; i++ {
			if raw[i] != '\\' || !unescaped(raw, i) {
				continue
			}
			n := 2
			if raw[i+1] == 'u' {
				n = 6
			}
			if i+n > *at {
				if at == &from {
					*at = i
				} else {
					*at = i + n
				}
				break
			}
		}
	}
	return from, to
}

// unescaped reports whether the backslash or quote at i is not itself escaped.
func unescaped(raw string, i int) bool {
	n := 0
	for i-n-1 >= 0 && raw[i-n-1] == '\\' {
		n++
	}
	return n%2 == 0
}
