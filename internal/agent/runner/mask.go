package runner

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/secret"
)

// mask hides the token of a run, and the secrets of its blueprint, in what is told of it:
// a program may print what it was given.
type mask struct {
	words    *strings.Replacer
	secrets  []string
	encoded  [][]byte // the secrets as they stand in JSON
	possible bool
}

func newMask(secrets []string) *mask {
	m := &mask{}
	var pairs []string
	// A secret that holds another is hidden first.
	sorted := slices.SortedStableFunc(slices.Values(secrets), func(a, b string) int { return len(b) - len(a) })
	for _, s := range sorted {
		if s == "" {
			continue
		}
		pairs = append(pairs, s, secret.Mask)
		m.secrets = append(m.secrets, s)
		raw, err := json.Marshal(s)
		if err == nil {
			m.encoded = append(m.encoded, raw[1:len(raw)-1])
		}
		m.encoded = append(m.encoded, []byte(s))
	}
	m.words = strings.NewReplacer(pairs...)
	m.possible = len(pairs) > 0
	return m
}

// Masked is a document without secrets.
func Masked(raw json.RawMessage, secrets []string) json.RawMessage { return newMask(secrets).json(raw) }

func (m *mask) text(s string) string { return m.words.Replace(s) }

// json hides them in the texts of a document. One that is no JSON is a text.
func (m *mask) json(raw json.RawMessage) json.RawMessage {
	if !m.possible || len(raw) == 0 || !m.suspect(raw) {
		return raw
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) == nil && !dec.More() {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if enc.Encode(m.value(v)) == nil {
			return bytes.TrimSpace(out.Bytes())
		}
	}
	out, _ := json.Marshal(m.text(string(raw)))
	return out
}

// suspect reports whether a document may have one of them. A text may be written with
// escapes that it does not need.
func (m *mask) suspect(raw []byte) bool {
	if bytes.Contains(raw, []byte(`\u`)) || bytes.Contains(raw, []byte(`\/`)) {
		return true
	}
	return slices.ContainsFunc(m.encoded, func(s []byte) bool { return bytes.Contains(raw, s) })
}

func (m *mask) value(v any) any {
	switch v := v.(type) {
	case string:
		return m.text(v)
	case []any:
		for i := range v {
			v[i] = m.value(v[i])
		}
	case map[string]any:
		for key, value := range v {
			clean := m.text(key)
			if clean != key {
				delete(v, key)
			}
			v[clean] = m.value(value)
		}
	}
	return v
}

func (m *mask) events(all []executor.Event) []executor.Event {
	for i := range all {
		all[i].Data = m.json(all[i].Data)
		all[i].ExecutorSession = m.text(all[i].ExecutorSession)
	}
	return all
}

func (m *mask) result(r api.RunResult) api.RunResult {
	return api.RunResult{Text: m.text(r.Text), Data: m.json(r.Data)}
}

func (m *mask) failure(e *api.Error) *api.Error {
	if e == nil {
		return nil
	}
	c := *e
	c.Message = m.text(c.Message)
	c.Causes = slices.Clone(c.Causes)
	for i := range c.Causes {
		c.Causes[i] = m.failure(c.Causes[i])
	}
	return &c
}
