package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxIncluded bounds a file that ${file:PATH} or env_file brings in.
const MaxIncluded = 1 << 20

// part is a piece of a string: plain text, or one placeholder.
type part struct {
	text string // plain text; with kind set, the placeholder as written

	kind   string // "" for text, else env, file, input, folder or kept
	name   string
	def    string
	hasDef bool
}

var plainVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// folderNames are the placeholders by which editors name folders.
var folderNames = map[string]bool{
	"workspaceFolder": true, "workspaceFolderBasename": true, "workspaceRoot": true,
	"userHome": true, "pathSeparator": true, "/": true,
}

// placeholderError is a string whose placeholders can't be read.
type placeholderError struct{ msg string }

func (e *placeholderError) Error() string { return e.msg }

func badPlaceholder(format string, args ...any) error {
	return &placeholderError{fmt.Sprintf(format, args...)}
}

// splitPlaceholders cuts a string at its placeholders. $${ is a literal ${, and
// a dollar sign before anything else is itself.
func splitPlaceholders(s string) ([]part, error) {
	var parts []part
	text := strings.Builder{}
	flush := func() {
		if text.Len() > 0 {
			parts = append(parts, part{text: text.String()})
			text.Reset()
		}
	}
	for s != "" {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			text.WriteString(s)
			break
		}
		text.WriteString(s[:i])
		s = s[i:]
		switch {
		case strings.HasPrefix(s, "$${"):
			text.WriteString("${")
			s = s[3:]
		case strings.HasPrefix(s, "${"):
			end := closingBrace(s)
			if end < 0 {
				return nil, badPlaceholder("%q has no closing brace; write ${NAME}, or $${ for a literal ${", Clip(s))
			}
			p, err := readPlaceholder(s[:end+1])
			if err != nil {
				return nil, err
			}
			flush()
			parts = append(parts, p)
			s = s[end+1:]
		default:
			text.WriteByte('$')
			s = s[1:]
		}
	}
	flush()
	return parts, nil
}

// closingBrace is the index of the brace that ends the placeholder at the start
// of s. Braces in a default count, so that ${X:-{}} is the default {}.
func closingBrace(s string) int {
	depth := 0
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// readPlaceholder takes one apart, with its braces.
func readPlaceholder(whole string) (part, error) {
	p, bare := part{text: whole, kind: "env"}, true
	body := whole[2 : len(whole)-1]
	if folderNames[body] {
		p.kind, p.name = "folder", body
		return p, nil
	}
	if p, ok, err := readKept(whole, body); ok {
		return p, err
	}
	prefix, rest, hasPrefix := strings.Cut(body, ":")
	if hasPrefix && !strings.HasPrefix(rest, "-") {
		switch prefix {
		case "env", "file", "input":
			p.kind, body, bare = prefix, rest, false
		default:
			return p, badPlaceholder("%s: %q is not a kind of placeholder; use ${NAME}, ${NAME:-default}, ${env:NAME} or ${file:PATH}, or $${ for a literal ${", Clip(whole), Clip(prefix))
		}
	}
	p.name = body
	if p.kind == "env" {
		p.name, p.def, p.hasDef = strings.Cut(body, ":-")
		if strings.Contains(p.def, "${") {
			return p, badPlaceholder("%s: a default can't hold another placeholder", Clip(whole))
		}
	}
	switch {
	case p.name == "":
		return p, badPlaceholder("%s names nothing; write ${NAME}", Clip(whole))
	case strings.ContainsAny(p.name, "{}\x00\n"):
		return p, badPlaceholder("%s: %q can't be a name", Clip(whole), Clip(p.name))
	case bare && !plainVariable.MatchString(p.name):
		return p, badPlaceholder("%s: %q is not a variable's name; write $${ for a literal ${, or ${env:NAME} for an unusual name", Clip(whole), Clip(p.name))
	}
	return p, nil
}

// resolver gives placeholders their values.
type resolver struct {
	getenv    func(string) (string, bool)
	readFile  func(string) ([]byte, error)
	paths     paths
	workspace string
}

// absent is a placeholder that has no value here.
type absent struct {
	what string // "variable X is not set"
	mend string
}

// expand resolves a string's placeholders, once: what comes out of one is not
// looked at again. secret reports whether anything came from outside the file.
func (r *resolver) expand(s string) (out string, secret bool, gone []absent, err error) {
	if !strings.Contains(s, "${") {
		return s, false, nil, nil
	}
	parts, err := splitPlaceholders(s)
	if err != nil {
		return "", false, nil, err
	}
	var b strings.Builder
	for _, p := range parts {
		switch p.kind {
		case "", "kept":
			b.WriteString(p.text)
		case "folder":
			b.WriteString(r.folder(p.name))
		case "input":
			gone = append(gone, absent{
				"it asks for input " + p.name + " (${input:" + p.name + "}), which only an editor can ask for",
				"write ${NAME} and set that variable",
			})
		case "file":
			secret = true
			v, a := r.file(p.name)
			if a != nil {
				gone = append(gone, *a)
			}
			b.WriteString(v)
		default:
			secret = true
			v, ok := r.getenv(p.name)
			switch {
			case p.hasDef && (!ok || v == ""):
				b.WriteString(p.def)
			case ok:
				b.WriteString(v)
			default:
				gone = append(gone, absent{
					"variable " + p.name + " is not set",
					"set it, or write ${" + p.name + ":-default}",
				})
			}
		}
	}
	return b.String(), secret, gone, nil
}

func (r *resolver) folder(name string) string {
	switch name {
	case "userHome":
		return r.paths.home
	case "pathSeparator", "/":
		return string(filepath.Separator)
	case "workspaceFolderBasename":
		return filepath.Base(r.workspace)
	default:
		return r.workspace
	}
}

func (r *resolver) file(name string) (string, *absent) {
	path := r.paths.resolve(name)
	data, err := r.readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &absent{"file " + path + " does not exist", "create it"}
	case err != nil:
		return "", &absent{"file " + path + " can't be read: " + err.Error(), "mend that"}
	case len(data) > MaxIncluded:
		return "", &absent{"file " + path + " is larger than 1 MiB", "make it smaller"}
	case !utf8.Valid(data):
		return "", &absent{"file " + path + " is not UTF-8 text", "encode it"}
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// resolve expands every string below n in place and returns what was absent.
// Strings that can't be read are problems.
func (d *decoder) resolve(n *Node, path string) []missing {
	switch n.Shape {
	case ShapeString:
		out, secret, gone, err := d.res.expand(n.Text)
		if err != nil {
			d.fail(n.Pos, "%s: %v", path, err)
			n.Missing = true
			return nil
		}
		if secret {
			n.From = n.Text
		} else if strings.Contains(n.Text, mask) {
			d.warn(n.Pos, "%s: holds %s, which stands for a secret in what tine config show prints; write the secret itself, or a placeholder such as ${NAME}", path, mask)
		}
		n.Kept = keptIn(n.Text)
		n.Text = out
		var list []missing
		for _, a := range gone {
			n.Missing = true
			list = append(list, missing{a, n.Pos, path})
		}
		return list
	case ShapeList:
		var list []missing
		for i, item := range n.Items {
			list = append(list, d.resolve(item, fmt.Sprintf("%s[%d]", path, i))...)
		}
		return list
	case ShapeMap:
		var list []missing
		for _, p := range n.Pairs {
			list = append(list, d.resolve(p.Value, join(path, p.Key))...)
		}
		return list
	}
	return nil
}

// lacks reports whether a placeholder in n has no value.
func (n *Node) lacks() bool {
	if n == nil {
		return false
	}
	return n.Missing || slices.ContainsFunc(n.Items, (*Node).lacks) || slices.ContainsFunc(n.Pairs, func(p Pair) bool { return p.Value.lacks() })
}

// missing is an absent placeholder and where it stands.
type missing struct {
	absent
	pos  Pos
	path string
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
