package remote

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// minSecret is the length below which hiding a value wherever it stands would
// hide too much else.
const minSecret = 6

// A mask hides what was shown to an orchestrator: some repeat it in their errors.
type mask struct {
	mu      sync.Mutex
	secrets []string
}

// maxSecrets bounds how many are remembered: tokens are renewed now and then, and
// an answer repeats a new one.
const maxSecrets = 64

// learn adds a value of a header, with and without its scheme.
func (m *mask) learn(value string) {
	_, token, _ := strings.Cut(value, " ")
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range []string{value, strings.TrimSpace(token)} {
		if len(s) < minSecret || slices.Contains(m.secrets, s) {
			continue
		}
		if len(m.secrets) == maxSecrets {
			m.secrets = m.secrets[2:]
		}
		m.secrets = append(m.secrets, s)
	}
}

// learnQuery adds what a URL carries.
func (m *mask) learnQuery(u *url.URL) {
	for _, values := range u.Query() {
		for _, v := range values {
			m.learn(v)
		}
	}
}

func (m *mask) hide(text string) string {
	if m == nil {
		return text
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	return text
}

// shownBytes is how much of an answer an error repeats.
const shownBytes = 300

// excerpt makes the beginning of an answer fit an error message. It is masked
// before it is cut: half a secret is not found any more.
func (m *mask) excerpt(b []byte) string {
	text := strings.ToValidUTF8(string(b[:min(len(b), 16<<10)]), "?")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
	text = m.hide(strings.Join(strings.Fields(text), " "))
	if len(text) > shownBytes {
		text = strings.ToValidUTF8(text[:shownBytes], "") + "..."
	}
	return text
}
