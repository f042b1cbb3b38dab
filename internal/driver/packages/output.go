package packages

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// How much of an installer's output is kept to find out what is wrong.
const (
	keptLines = 12
	keptLine  = 300
)

var escapes = regexp.MustCompile(`\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)`)

// noise are lines that say nothing, or that name a file which is gone when they
// are read.
var noise = regexp.MustCompile(`^npm (?:error|ERR!)(?:\s*$|\s+at |.* complete log of this run|\s+404(?:\s*$|\s+(?:Note that you|tarball, folder)))|^npm warn Unknown |_logs[/\\]`)

// output keeps the last lines that a program prints, masked. Endless output and
// endless lines cost nothing.
type output struct {
	secrets secrets

	mu    sync.Mutex
	lines []string
	open  []byte
	fresh bool // a line that news has not returned
	loads loads
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexAny(p, "\n\r")
		part := p
		if end >= 0 {
			part, p = p[:end], p[end+1:]
		} else {
			p = nil
		}
		// A secret must not be cut in two, or half of it would be shown: a line is
		// kept longer than it is printed.
		if room := 16*keptLine - len(o.open); room > 0 {
			o.open = append(o.open, part[:min(len(part), room)]...)
		}
		if end >= 0 {
			o.end()
		}
	}
	return n, nil
}

func (o *output) end() {
	line := o.clean(o.open)
	o.open = o.open[:0]
	if line == "" || noise.MatchString(line) {
		return
	}
	o.fresh = true
	o.loads.read(line)
	if len(o.lines) == keptLines {
		o.lines = append(o.lines[:0], o.lines[1:]...)
	}
	o.lines = append(o.lines, line)
}

func (o *output) clean(b []byte) string {
	text := escapes.ReplaceAllString(strings.ToValidUTF8(string(b), "?"), "")
	text = strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	text = o.secrets.mask(strings.TrimRight(text, " "))
	if len(text) > keptLine {
		text = strings.ToValidUTF8(text[:keptLine], "") + "..."
	}
	return text
}

// tail is what was printed last.
func (o *output) tail() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.open) > 0 {
		o.end()
	}
	return append([]string(nil), o.lines...)
}

// loaded is how much the installer says that it has loaded, and of how much.
func (o *output) loaded() (done, total int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.loads.done, o.loads.total
}

// news is the last whole line, once, for showing that something moves.
func (o *output) news() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.fresh || len(o.lines) == 0 {
		return ""
	}
	o.fresh = false
	line := []rune(strings.TrimSpace(o.lines[len(o.lines)-1]))
	if len(line) > 100 {
		line = append(line[:100], []rune("...")...)
	}
	return string(line)
}

// answer keeps the output of a program that prints one thing.
type answer struct {
	bytes.Buffer
	over bool
}

const maxAnswer = 4 << 20

func (a *answer) Write(p []byte) (int, error) {
	if a.Len()+len(p) > maxAnswer {
		a.over = true
		return len(p), nil
	}
	return a.Buffer.Write(p)
}
