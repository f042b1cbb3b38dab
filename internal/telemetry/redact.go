package telemetry

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tine-mcp/tine/internal/secret"
)

// mask stands where a secret was.
const mask = secret.Mask

// maxNested bounds how deep JSON inside strings inside JSON is followed.
const maxNested = 4

// wholeText is the longest text that is decoded or parsed as a whole. Longer ones
// are read in place, and only pieces of them are decoded.
const wholeText = 1 << 20

// Redactor masks secrets in output for people and other programs: values that the
// config says are secret, in any encoding, texts in the form of a common
// credential, and values under a name that says it is secret. Everything else stays
// byte for byte. All methods may be called at once; nil masks nothing.
type Redactor struct {
	known atomic.Pointer[knownValues]

	mu      sync.Mutex
	set     []string
	learned recent
	runs    recent // of runs of agents, which may be many
}

// maxLearned bounds the values that came with Learn, and the same for LearnOfRun: each new
// one has all of them read.
const maxLearned = 256

// recent are values, the one that was seen longest ago first.
type recent []string

// add notes a value, and says whether it is new and whether another one went for it.
func (l *recent) add(value string, most int) (fresh, dropped bool) {
	at := slices.Index(*l, value)
	if at < 0 {
		fresh = true
		if dropped = len(*l) == most; dropped {
			at = 0
		}
	}
	if at >= 0 {
		*l = slices.Delete(*l, at, at+1)
	}
	*l = append(*l, value)
	return fresh, dropped
}

// Learn adds a value that became a secret at run time, such as an access token. It
// stays one when another replaces it: the records of earlier calls may hold it.
func (r *Redactor) Learn(value string) {
	if r == nil || value == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if fresh, _ := r.learned.add(value, maxLearned); fresh {
		r.know()
	}
}

// LearnOfRun adds values that are secrets of a run of an agent. It reports whether others,
// of runs long ago as a rule, are known no longer for it.
func (r *Redactor) LearnOfRun(values []string) (dropped bool) {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := false
	for _, v := range values {
		if v == "" {
			continue
		}
		fresh, gone := r.runs.add(v, maxLearned)
		changed, dropped = changed || fresh, dropped || gone
	}
	if changed {
		r.know()
	}
	return dropped
}

// know has the values masked from now on. It needs r.mu.
func (r *Redactor) know() {
	r.known.Store(newKnownValues(slices.Concat(r.set, r.learned, r.runs)))
}

// NewRedactor makes a Redactor that knows forms and names, and no values yet.
func NewRedactor() *Redactor { return &Redactor{} }

// Set says which values are secret now. They, and earlier ones, are masked
// everywhere, also escaped as in JSON, URL-encoded or in base64. Values of less
// than four bytes are left out: they would mask half of any text and protect
// nothing.
func (r *Redactor) Set(secrets []string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Earlier secrets stay secret: recorded calls may hold them.
	for _, old := range r.set {
		if !slices.Contains(secrets, old) {
			r.learned.add(old, maxLearned)
		}
	}
	r.set = slices.Clone(secrets)
	r.know()
}

// Text masks secrets in any text.
func (r *Redactor) Text(s string) string {
	if r == nil {
		return s
	}
	cuts := r.find(s, 0)
	if len(cuts) == 0 {
		return s
	}
	return string(applyCuts(s, cuts))
}

// JSON masks secrets in a JSON document, whose result is valid JSON again; anything
// else is treated as text. If there is nothing to mask it returns b itself.
func (r *Redactor) JSON(b []byte) []byte {
	if r == nil || len(b) == 0 {
		return b
	}
	s := string(b)
	var cuts []cut
	if json.Valid(b) {
		cuts = r.findJSON(s, 0)
	} else {
		cuts = r.find(s, 0)
	}
	if len(cuts) == 0 {
		return b
	}
	return applyCuts(s, cuts)
}

// find lists the cuts of a text.
func (r *Redactor) find(s string, nested int) []cut {
	known := r.known.Load()
	cuts := known.find(s, nil)
	if nested < maxNested && looksLikeJSON(s) && len(s) <= wholeText && json.Valid([]byte(s)) {
		return append(cuts, r.findJSON(s, nested)...)
	}
	return findForms(s, cuts)
}

// findForms adds what looks like a secret.
func findForms(s string, cuts []cut) []cut {
	for _, f := range secret.Find(s) {
		cuts = append(cuts, cut{f.From, f.To, mask})
	}
	return cuts
}

// looksLikeJSON is a quick check that spares most texts the full one. A single
// string or number is treated as text.
func looksLikeJSON(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n")
	if s == "" || s[0] != '{' && s[0] != '[' {
		return false
	}
	s = strings.TrimRight(s, " \t\r\n")
	end := s[len(s)-1]
	return end == '}' || end == ']'
}

// cut is a piece of a text that is replaced.
type cut struct {
	from, to int
	with     string
}

// applyCuts puts the masks in. Cuts come in any order and may overlap or touch;
// such ones become a single mask, which also hides how many there were.
func applyCuts(s string, cuts []cut) []byte {
	slices.SortFunc(cuts, func(a, b cut) int { return a.from - b.from })
	out := make([]byte, 0, len(s))
	at := 0
	for i := 0; i < len(cuts); {
		c := cuts[i]
		for i++; i < len(cuts) && cuts[i].from <= c.to; i++ {
			c.to = max(c.to, cuts[i].to)
		}
		out = append(out, s[at:c.from]...)
		out = append(out, c.with...)
		at = c.to
	}
	return append(out, s[at:]...)
}
