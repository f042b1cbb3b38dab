package gateway

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// namesOf makes the table of a gateway with one server.
func namesOf(server, sep string, shorten bool) *table {
	s := &shape{entry: &catalog.Entry{Server: config.Server{ID: server}}, plain: true}
	return &table{sep: sep, shorten: shorten, shapes: map[string]*shape{server: s}}
}

// FuzzNames holds that a name or URI of the merged view leads back to the
// server and the name it was made from, and that shortened names fit, stay the
// same and are told apart.
func FuzzNames(f *testing.F) {
	f.Add("files", "read_file", "file:///a/b")
	f.Add("a", "b__c", "tine://a/x")
	f.Add("a.b-c_d", "__", "")
	f.Add("s", strings.Repeat("long_", 30), "demo://{id}")
	f.Add("s", "ünï", "a://b?c=d#e")
	f.Add("s", strings.Repeat("日本", 20), "x:y")
	f.Fuzz(func(t *testing.T, server, name, uri string) {
		// Ids that the config refuses never come here.
		if !utf8.ValidString(server) || !utf8.ValidString(name) || server == "" || len(server) > 50 || strings.ContainsAny(server, "/") || strings.Contains(server+"_", "__") {
			return
		}
		plain := namesOf(server, "__", false)
		s, rest, short := plain.split(plain.merged(server, name))
		if s == nil || rest != name || short {
			t.Errorf("%q of %q came back as %q, short %v", name, server, rest, short)
		}
		if s, own, ok := plain.inURI(outURI(server, uri)); !ok || s.entry.ID != server || own != uri {
			t.Errorf("%q of %q came back as %q", uri, server, own)
		}
		tight := namesOf(server, "__", true)
		seen := tight.merged(server, name)
		full := server + "__" + name
		if len(full) <= maxName && seen != full {
			t.Errorf("%q was changed to %q without need", full, seen)
		}
		if len(seen) > maxName || !utf8.ValidString(seen) || seen != tight.merged(server, name) {
			t.Errorf("%q became %q", full, seen)
		}
		if len(full) > maxName {
			if s, _, short := tight.split(seen); s == nil || !short {
				t.Errorf("%q is not known as shortened", seen)
			}
			if other := tight.merged(server, name+"x"); other == seen {
				t.Errorf("two names became %q", seen)
			}
		}
	})
}
