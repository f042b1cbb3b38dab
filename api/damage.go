package api

import (
	"fmt"
	"strings"
	"time"
)

// What was kept of a server's state when a session was damaged.
const (
	KeptNothing = "nothing" // the server began anew
	KeptFiles   = "files"   // the server started anew on its declared state
	KeptPart    = "part"    // stored data was lost or is unreadable, the rest is there
)

// Damage says that a session's state no longer reflects its calls: a server ended
// and lost its memory, or stored data was lost. Forks, snapshots and exports of the
// session have the damage too. A rewind to a snapshot from before removes it.
type Damage struct {
	Server string    `json:"server,omitempty"` // with ~1 and so on for further instances; empty for the workspace or the whole session
	At     time.Time `json:"at"`               // the first time
	Why    string    `json:"why"`
	Words  string    `json:"words,omitempty"` // what the server wrote to its standard error before; never of a shared server
	Kept   string    `json:"kept"`            // nothing, files or part
	Call   string    `json:"call,omitempty" jsonschema:"the last call of the session before it; missing where there was none, or where it was not known; of a damage that was inherited it is a call of the session that had it first"`
	Times  int       `json:"times,omitempty"` // how often it happened, where more than once
	// Last is the last of several times, and LastWhy why, where that differs from Why.
	Last    time.Time `json:"last,omitzero"`
	LastWhy string    `json:"last_why,omitempty"`
	// Memory says that the server lost its memory, though files were kept: its state
	// is its memory, and not a declared directory.
	Memory bool `json:"memory,omitempty"`
}

// Text is the damage in one line.
func (d Damage) Text() string {
	text := WithWords(d.Why, d.Words)
	if d.Server != "" {
		text = fmt.Sprintf("server %q: %s", d.Server, text)
	}
	text += "; kept: " + d.Kept
	switch {
	case d.Times > 1 && d.LastWhy != "":
		text += fmt.Sprintf(" (%d times, the last at %s: %s)", d.Times, d.Last.UTC().Format(time.RFC3339), d.LastWhy)
	case d.Times > 1:
		text += fmt.Sprintf(" (%d times)", d.Times)
	}
	return text
}

// lastWords stands before what a server wrote to its standard error.
const lastWords = "; its last words: "

// WithWords is a reason with what the server wrote to its standard error, if that
// is known.
func WithWords(reason, words string) string {
	if words == "" {
		return reason
	}
	return reason + lastWords + words
}

// WithoutWords cuts the server's words off a reason that an earlier version wrote.
func WithoutWords(reason string) string {
	reason, _, _ = strings.Cut(reason, lastWords)
	return reason
}

// Bare is the damage without what the server wrote.
func (d Damage) Bare() Damage {
	d.Why, d.Words = WithoutWords(d.Why), ""
	return d
}

// AddDamage adds a damage to those of a session. There is one for each server and
// what was kept of it: the first, which says since when the session is damaged.
func AddDamage(all []Damage, d Damage) []Damage {
	for i := range all {
		if all[i].Server == d.Server && all[i].Kept == d.Kept {
			next := append([]Damage(nil), all...)
			next[i].Times = max(next[i].Times, 1) + max(d.Times, 1)
			next[i].Memory = next[i].Memory || d.Memory
			next[i].Last, next[i].LastWhy = d.At, ""
			if why := WithoutWords(d.Why); why != WithoutWords(next[i].Why) {
				next[i].LastWhy = why
			}
			return next
		}
	}
	return append(all[:len(all):len(all)], d)
}

// RemoveDamage removes a damage that turned out to be none.
func RemoveDamage(all []Damage, d Damage) []Damage {
	for i := range all {
		if all[i].Server != d.Server || all[i].Kept != d.Kept {
			continue
		}
		if all[i].Times <= 1 {
			return append(all[:i:i], all[i+1:]...)
		}
		next := append([]Damage(nil), all...)
		if next[i].Times--; next[i].Times == 1 {
			next[i].Times, next[i].Last, next[i].LastWhy = 0, time.Time{}, ""
		}
		return next
	}
	return all
}
