package driver

import (
	"regexp"
	"slices"
	"strings"
)

// Mends say what to do about a server that is reached over HTTP. In each
// "servers.ID." stands before a key of the server.
type Mends struct {
	Gone   string // it does not answer
	Locked string // it wants to be shown something else
	Moved  string // it redirects
}

// Of are the mends of one server.
func (m Mends) Of(server string) Mends {
	at := strings.NewReplacer("servers.ID.", "servers."+server+".")
	return Mends{at.Replace(m.Gone), at.Replace(m.Locked), at.Replace(m.Moved)}
}

// A Hint is what can be done about a failure that a program tells in its log.
type Hint struct {
	Says *regexp.Regexp
	// Mend is what to do; empty where that is not the reason here. found is what the
	// log says, and of it the groups.
	Mend func(spec Spec, found []string) string
}

// Hints are tried in their order, and the first that knows what to do is given.
type Hints []Hint

// For is what can be done about what a server says in its log; empty where that is
// not known.
func (h Hints) For(spec Spec, log string) string {
	for _, hint := range h {
		all := hint.Says.FindAllStringSubmatch(log, -1)
		slices.Reverse(all) // the last one is what it ended of
		for _, found := range all {
			if mend := hint.Mend(spec, found); mend != "" {
				return mend
			}
		}
	}
	return ""
}
