package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/files/patch"
)

// maxTries is how often an edit starts over because the file changed under it.
const maxTries = 5

func (s *server) editFile(ctx context.Context, a *args) (*mcp.CallToolResult, error) {
	asked, edits, dry := a.text("path"), a.edits("edits"), a.flag("dryRun")
	if a.err != nil {
		return nil, a.err
	}
	for range maxTries {
		p, err := s.find(asked)
		if err != nil {
			return nil, err
		}
		before, err := s.readPlace(ctx, p)
		if err != nil {
			return nil, err
		}
		if !utf8.Valid(before) {
			return nil, fmt.Errorf("%s is not UTF-8 text; an edit would damage it", s.shown(p.name))
		}
		old := newlines(string(before))
		changed, err := apply(ctx, old, edits)
		if err != nil {
			return nil, err
		}
		shown := fenced(patch.Unified(s.shown(p.name), old, changed))
		if dry {
			return text(shown), nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// Calls of this server wait for each other, other members of the session
		// don't: the file must still be what was read.
		if now, err := s.readPlace(ctx, p); err != nil || !bytes.Equal(now, before) {
			continue
		}
		if err := s.write(p, changed); err != nil {
			return nil, err
		}
		return text(shown), nil
	}
	return nil, fmt.Errorf("%s changed each of the %d times that it was to be edited; nothing was written", asked, maxTries)
}

func (s *server) readPlace(ctx context.Context, p place) ([]byte, error) {
	f, err := s.openPlace(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := whole(ctx, f, s.maxRead)
	if errors.As(err, new(tooLarge)) {
		return nil, fmt.Errorf("%s has more than the %d bytes that can be edited (max_read)", s.shown(p.name), s.maxRead)
	}
	return b, err
}

// apply makes the edits one after the other.
func apply(ctx context.Context, s string, edits []edit) (string, error) {
	for _, e := range edits {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		before, after := newlines(e.old), newlines(e.new)
		if strings.Contains(s, before) {
			s = strings.Replace(s, before, after, 1)
			continue
		}
		changed, ok := applyLoosely(s, before, after)
		if !ok {
			return "", toolErrorf("Could not find exact match for edit:\n%s", e.old)
		}
		s = changed
	}
	return s, nil
}

// applyLoosely finds lines that are the same but for white space at their ends,
// and gives what replaces them the indentation that is there.
func applyLoosely(s, before, after string) (string, bool) {
	lines, old := strings.Split(s, "\n"), strings.Split(before, "\n")
	// As one text, since to compare line by line from each line takes the product
	// of both where many are the same.
	bare := bareLines(lines)
	i := strings.Index(bare, bareLines(old))
	if i < 0 {
		return "", false
	}
	i = strings.Count(bare[:i], "\n")
	inserted := reindent(strings.Split(after, "\n"), old, indent(lines[i]))
	return strings.Join(slices.Concat(lines[:i], inserted, lines[i+len(old):]), "\n"), true
}

// bareLines has a newline before and after every line.
func bareLines(lines []string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for _, l := range lines {
		b.WriteString(trim(l))
		b.WriteByte('\n')
	}
	return b.String()
}

// reindent gives the first line the indentation at hand, and those after it what
// they have beyond the line that they stand for.
func reindent(lines, old []string, base string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		own := indent(l)
		switch {
		case i == 0:
			out[i] = base + l[len(own):]
		case i < len(old) && indent(old[i]) != "" && own != "":
			more := utf8.RuneCountInString(own) - utf8.RuneCountInString(indent(old[i]))
			out[i] = base + strings.Repeat(" ", max(0, more)) + l[len(own):]
		default:
			out[i] = l
		}
	}
	return out
}

func indent(line string) string { return line[:len(line)-len(strings.TrimLeftFunc(line, isSpace))] }

func trim(line string) string { return strings.TrimFunc(line, isSpace) }

// isSpace is white space as JavaScript has it.
func isSpace(r rune) bool { return r == '\uFEFF' || r != '\u0085' && unicode.IsSpace(r) }

func newlines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// fenced puts a diff between more backticks than are in it.
func fenced(diff string) string {
	longest, run := 2, 0
	for i := range len(diff) {
		if diff[i] != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "diff\n" + diff + fence + "\n\n"
}
