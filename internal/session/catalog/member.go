package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// FromSnapshot begins the name of a snapshot where a template may stand.
const FromSnapshot = "snapshot:"

// A session may have several instances of one server. Each is a member of its
// own, with a state and a part of its own: memory is the first, memory~1 the
// second. They are in the session's catalog, and in no other.

// MaxInstances bounds the instances of one server in a session.
const MaxInstances = 1000

// A Member says more about the instances that a new session has of one server.
type Member struct {
	Instances int `json:"instances,omitempty"` // zero for one
	// Template is as in api.NewMember; nil for the server's own.
	Template json.RawMessage `json:"template,omitempty"`
	// Snapshot is the one that Template means, by its id, where it is one that the
	// owner may use; empty where only the owner's own will do.
	Snapshot string `json:"-"`
}

// MemberName is what an instance of a server is called in its session.
func MemberName(server string, ordinal int) string {
	if ordinal == 0 {
		return server
	}
	return server + "~" + strconv.Itoa(ordinal)
}

// SplitMember is the server and the ordinal of a member's name.
func SplitMember(name string) (server string, ordinal int) {
	server, text, ok := strings.Cut(name, "~")
	if !ok {
		return name, 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n >= MaxInstances || strconv.Itoa(n) != text {
		return name, 0
	}
	return server, n
}

// instances are the members that a session has of a server, by what it says of
// it.
func (e *Entry) instances(m Member) []*Entry {
	if m.Instances <= 1 && m.Template == nil {
		return []*Entry{e}
	}
	all := make([]*Entry, 0, max(m.Instances, 1))
	for n := range max(m.Instances, 1) {
		one := *e
		one.ID, one.Ordinal = MemberName(e.ID, n), n
		if m.Template != nil {
			one.begin(m.Template)
		}
		all = append(all, &one)
	}
	return all
}

// viewKey tells the catalogs of sessions apart that were made with the same
// servers.
func viewKey(pin string, only []string, members map[string]Member) string {
	key := pin + "|" + strings.Join(only, ",")
	for _, id := range slices.Sorted(maps.Keys(members)) {
		m := members[id]
		key += fmt.Sprintf("|%s~%d %s", id, m.Instances, m.Template)
	}
	return key
}
