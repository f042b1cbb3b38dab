package domains

import (
	"net/netip"
	"strings"
	"testing"
)

func parse(t *testing.T, entries ...string) *List {
	t.Helper()
	l, err := Parse(entries)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAllowsName(t *testing.T) {
	for _, tt := range []struct {
		entry string
		name  string
		port  uint16
		want  bool
	}{
		{"example.org", "example.org", 443, true},
		{"example.org", "example.org", 80, true},
		{"example.org", "example.org", 8080, false},
		{"example.org", "www.example.org", 443, false},
		{"example.org", "badexample.org", 443, false},
		{"example.org", "example.org.evil.net", 443, false},
		{"EXAMPLE.Org.", "example.org", 443, true},
		{"example.org:8443", "example.org", 8443, true},
		{"example.org:8443", "example.org", 443, false},
		{"*.example.org", "a.example.org", 443, true},
		{"*.example.org", "a.b.example.org", 80, true},
		{"*.example.org", "example.org", 443, false},
		{"*.example.org", "badexample.org", 443, false},
		{"*.example.org:22", "a.example.org", 22, true},
		{"*.example.org:22", "a.example.org", 443, false},
		{"*.org", "example.org", 443, true},
		{"bücher.example", "xn--bcher-kva.example", 443, true},
		{"BÜCHER.example", "xn--bcher-kva.example", 443, true},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", 443, true},
		{"*.bücher.example", "a.xn--bcher-kva.example", 443, true},
		{"localhost:3000", "localhost", 3000, true},
		{"r3---sn-a_b.example.org", "r3---sn-a_b.example.org", 443, true},
		{"10.0.0.5", "10.0.0.5", 443, false}, // addresses are another matter
	} {
		if got := parse(t, tt.entry).AllowsName(tt.name, tt.port); got != tt.want {
			t.Errorf("%s allows %s:%d: %v", tt.entry, tt.name, tt.port, got)
		}
	}
	l := parse(t, "example.org", "example.org:22", "*.example.org:25")
	for port, want := range map[uint16]bool{80: true, 443: true, 22: true, 25: false} {
		if got := l.AllowsName("example.org", port); got != want {
			t.Errorf("two entries of one name, port %d: %v", port, got)
		}
	}
	var none *List
	if none.AllowsName("example.org", 443) || (&List{}).AllowsName("example.org", 443) || none.AllowsAddress(netip.MustParseAddr("1.1.1.1"), 443) {
		t.Error("an empty list allows something")
	}
}

func TestAllowsAddress(t *testing.T) {
	for _, tt := range []struct {
		entry, addr string
		port        uint16
		want        bool
	}{
		{"10.0.0.5:5432", "10.0.0.5", 5432, true},
		{"10.0.0.5:5432", "10.0.0.5", 443, false},
		{"10.0.0.5:5432", "10.0.0.6", 5432, false},
		{"10.0.0.5:5432", "::ffff:10.0.0.5", 5432, true},
		{"::ffff:10.0.0.5", "10.0.0.5", 80, true},
		{"10.0.0.5", "10.0.0.5", 443, true},
		{"10.0.0.0/8", "10.255.0.1", 80, true},
		{"10.0.0.0/8", "11.0.0.1", 80, false},
		{"10.0.0.0/8:5432", "10.1.1.1", 5432, true},
		{"10.0.0.0/8:5432", "10.1.1.1", 80, false},
		{"::ffff:10.0.0.0/104", "10.1.1.1", 80, true},
		{"fd00::1", "fd00::1", 443, true},
		{"[fd00::1]", "fd00::1", 443, true},
		{"[fd00::1]:5432", "fd00::1", 5432, true},
		{"fd00::/64", "fd00::abcd", 443, true},
		{"[fd00::/64]:22", "fd00::abcd", 22, true},
		{"[fd00::/64]:22", "fd00:0:0:1::1", 22, false},
		{"fe80::1", "fe80::1%eth0", 443, false},
		{"example.org", "10.0.0.5", 443, false},
	} {
		if got := parse(t, tt.entry).AllowsAddress(netip.MustParseAddr(tt.addr), tt.port); got != tt.want {
			t.Errorf("%s allows %s port %d: %v", tt.entry, tt.addr, tt.port, got)
		}
	}
}

func TestWrongEntries(t *testing.T) {
	for entry, want := range map[string]string{
		"":                              "no name",
		":443":                          "no name",
		".":                             "write *.",
		"*":                             "everything",
		"*:443":                         "everything",
		"*.":                            "no name",
		"a.*.org":                       "first label",
		"*a.org":                        "first label",
		"*.*.org":                       "first label",
		".example.org":                  "*.example.org",
		"https://example.org/x":         "name alone: example.org",
		"user@example.org":              "no user",
		"example.org:":                  "no port",
		"example.org:0":                 "1 to 65535",
		"example.org:65536":             "1 to 65535",
		"example.org:http":              "1 to 65535",
		"example.org:+80":               "1 to 65535",
		"example.org:080":               "1 to 65535",
		"example.org/path":              "neither a name nor a network",
		"exam ple.org":                  "' '",
		"example..org":                  "empty",
		"example.org..":                 "empty",
		"-a.org":                        "begins or ends",
		"a-.org":                        "begins or ends",
		strings.Repeat("a", 64):         "too long",
		strings.Repeat("a.", 126) + "a": "",
		strings.Repeat("a.", 127) + "a": "too long",
		strings.Repeat("a", 5000):       "too long",
		"127.1":                         "like an address",
		"0x7f000001":                    "like an address",
		"2130706433":                    "like an address",
		"*.0.0.1":                       "like an address",
		"１２７.0.0.1:80":                  "like an address",
		"256.0.0.1":                     "like an address",
		"10.0.0.5/8":                    "10.0.0.0/8",
		"0.0.0.0/0":                     "everything",
		"::/0":                          "everything",
		"10.0.0.0/33":                   "neither",
		"[example.org]:443":             "brackets",
		"[fd00::1":                      "brackets",
		"[fd00::1]443":                  "after the bracket",
		"fe80::1%eth0":                  "zone",
		"a\x00.org":                     "no '\\x00'",
		"\xff.org":                      "not text",
	} {
		err := Check(entry)
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", entry, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want ...%s...", entry, err, want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%q: the error has %d bytes", entry[:20], len(err.Error()))
		}
	}
	_, err := Parse([]string{"example.org", "*", "a b"})
	if err == nil || !strings.Contains(err.Error(), `"*"`) || !strings.Contains(err.Error(), `"a b"`) {
		t.Errorf("two wrong entries: %v", err)
	}
}

// TestEntry holds that what a mend says to write is a mend.
func TestEntry(t *testing.T) {
	for _, tt := range []struct {
		host string
		port uint16
		want string
	}{
		{"example.org", 443, "example.org"},
		{"example.org", 8080, "example.org:8080"},
		{"10.0.0.5", 5432, "10.0.0.5:5432"},
		{"fd00::1", 80, "fd00::1"},
		{"fd00::1", 22, "[fd00::1]:22"},
	} {
		got := Entry(tt.host, tt.port)
		if got != tt.want {
			t.Errorf("Entry(%s, %d) = %s, want %s", tt.host, tt.port, got, tt.want)
		}
		l := parse(t, got)
		a, err := netip.ParseAddr(tt.host)
		if !l.AllowsName(tt.host, tt.port) && (err != nil || !l.AllowsAddress(a, tt.port)) {
			t.Errorf("%s does not allow %s on %d", got, tt.host, tt.port)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"example.org", "Bücher.example.", "xn--a", "127.1", "１２７.0.0.1", "a。b", "_a.b-c.d", "\u200d.a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := Name(s)
		if err != nil {
			return
		}
		if again, err := Name(name); err != nil || again != name {
			t.Fatalf("%q is %q, which is %q, %v", s, name, again, err)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Fatalf("%q is the address %q", s, name)
		}
		if !parse(t, name).AllowsName(name, 443) {
			t.Fatalf("the list of %q does not allow it", name)
		}
	})
}
