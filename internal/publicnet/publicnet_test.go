package publicnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

func TestIsPublic(t *testing.T) {
	tests := map[string]bool{
		"8.8.8.8":                     true,
		"1.1.1.1":                     true,
		"2606:4700:4700::1111":        true,
		"64:ff9b::808:808":            true, // NAT64 of 8.8.8.8
		"::ffff:8.8.8.8":              true,
		"0.0.0.0":                     false,
		"0.1.2.3":                     false,
		"10.1.2.3":                    false,
		"100.64.0.1":                  false,
		"100.100.100.200":             false,
		"100.128.0.1":                 true,
		"127.0.0.1":                   false,
		"127.255.255.254":             false,
		"168.63.129.16":               false,
		"168.63.129.17":               true,
		"169.254.169.254":             false,
		"172.15.255.255":              true,
		"172.16.0.1":                  false,
		"172.31.255.255":              false,
		"172.32.0.1":                  true,
		"192.0.0.192":                 false,
		"192.168.1.1":                 false,
		"198.18.0.1":                  false,
		"224.0.0.1":                   false,
		"239.255.255.255":             false,
		"255.255.255.255":             false,
		"::":                          false,
		"::1":                         false,
		"::127.0.0.1":                 false, // IPv4-compatible
		"::ffff:127.0.0.1":            false,
		"::ffff:169.254.169.254":      false,
		"::ffff:0:127.0.0.1":          false, // IPv4-translated
		"64:ff9b::7f00:1":             false,
		"64:ff9b::a9fe:a9fe":          false,
		"64:ff9b:1::808:808":          false, // local NAT64
		"fe80::1":                     false,
		"fe80::1%eth0":                false,
		"2606:4700::1%eth0":           false,
		"fec0::1":                     false,
		"fc00::1":                     false,
		"fd00:ec2::254":               false,
		"ff02::1":                     false,
		"2001:db8::1":                 false,
		"2001::1":                     false, // Teredo
		"2002:7f00:1::1":              false, // 6to4 of 127.0.0.1
		"3fff::1":                     false,
		"100::1":                      false,
		"4000::1":                     false,
		"2a00:1450:4001:81b::200e":    true,
		"2001:4860:4860::8888":        true,
		"64:ff9b::10.0.0.1":           false,
		"0000:0000::ffff:192.168.0.1": false,
	}
	for s, want := range tests {
		if got := IsPublic(netip.MustParseAddr(s)); got != want {
			t.Errorf("IsPublic(%s) = %v, want %v", s, got, want)
		}
	}
	if IsPublic(netip.Addr{}) {
		t.Error("the zero address is public")
	}
}

func TestUnwrap(t *testing.T) {
	for s, want := range map[string]string{
		"8.8.8.8":              "8.8.8.8",
		"::ffff:10.0.0.1":      "10.0.0.1",
		"64:ff9b::10.0.0.1":    "10.0.0.1",
		"64:ff9b:1::808:808":   "64:ff9b:1::808:808",
		"2606:4700:4700::1111": "2606:4700:4700::1111",
	} {
		if got := Unwrap(netip.MustParseAddr(s)); got.String() != want {
			t.Errorf("Unwrap(%s) = %s, want %s", s, got, want)
		}
	}
}

func TestParseHost(t *testing.T) {
	tests := map[string]string{
		"127.0.0.1":      "127.0.0.1",
		"127.0.0.1.":     "127.0.0.1",
		"[::1]":          "::1",
		"::1":            "::1",
		"2130706433":     "127.0.0.1",
		"0x7f000001":     "127.0.0.1",
		"0X7F.1":         "127.0.0.1",
		"017700000001":   "127.0.0.1",
		"0177.0.0.1":     "127.0.0.1",
		"0177.0.0.0x1":   "127.0.0.1",
		"127.1":          "127.0.0.1",
		"127.0.1":        "127.0.0.1",
		"10.65535":       "10.0.255.255",
		"0":              "0.0.0.0",
		"4294967295":     "255.255.255.255",
		"4294967296":     "",
		"256.0.0.1":      "",
		"1.2.3.4.5":      "",
		"127.0.0.256":    "",
		"127.0.0.0b1":    "",
		"1_2.3.4.5":      "",
		"example.com":    "",
		"":               "",
		"127..1":         "",
		"09.1.1.1":       "",
		"-1":             "",
		"localhost":      "",
		"0x":             "",
		"fe80::1%25eth0": "fe80::1%25eth0",
	}
	for host, want := range tests {
		got, ok := ParseHost(host)
		if want == "" {
			if ok {
				t.Errorf("ParseHost(%q) = %s, want none", host, got)
			}
			continue
		}
		if !ok || got.String() != want {
			t.Errorf("ParseHost(%q) = %v %v, want %s", host, got, ok, want)
		}
	}
}

func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "0x7f.1", "2130706433", "[::1]", "a.b", "...."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ip, ok := ParseHost(s); ok {
			IsPublic(ip)
			if !ip.IsValid() {
				t.Fatalf("%q gives an invalid address", s)
			}
		}
	})
}

func get(t *testing.T, c *http.Client, u string) (string, error) {
	t.Helper()
	defer c.CloseIdleConnections()
	resp, err := c.Get(u)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), nil
}

func TestClientRefusesLoopback(t *testing.T) {
	hits := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hits++; io.WriteString(w, "in") }))
	defer srv.Close()
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "[::]", "127.1"} {
		u := "http://" + host + ":" + strconv.Itoa(port) + "/"
		_, err := get(t, NewClient(Options{}), u)
		var b *Blocked
		if !errors.As(err, &b) {
			t.Errorf("%s: err = %v, want Blocked", u, err)
		}
	}
	if hits != 0 {
		t.Errorf("the server was reached %d times", hits)
	}
	if got, err := get(t, NewClient(Options{AllowPrivate: true}), srv.URL); err != nil || got != "in" {
		t.Errorf("with AllowPrivate: %q, %v", got, err)
	}
}

// TestDialledAddressCounts gives a name that resolves to loopback only when it
// is dialled: what a rebinding DNS server does.
func TestDialledAddressCounts(t *testing.T) {
	err := RefusePrivate(context.Background(), "tcp4", "127.0.0.1:80", nil)
	var b *Blocked
	if !errors.As(err, &b) || b.Addr.String() != "127.0.0.1" {
		t.Fatalf("err = %v", err)
	}
	if err := RefusePrivate(context.Background(), "tcp6", "[fe80::1%lo]:80", nil); !errors.As(err, &b) {
		t.Fatalf("err = %v", err)
	}
	if err := RefusePrivate(context.Background(), "tcp4", "8.8.8.8:80", nil); err != nil {
		t.Fatal(err)
	}
}

func TestSchemes(t *testing.T) {
	for _, u := range []string{"ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1/"} {
		if _, err := get(t, NewClient(Options{AllowPrivate: true}), u); err == nil || !strings.Contains(err.Error(), "not supported") {
			t.Errorf("%s: err = %v", u, err)
		}
	}
}

func TestEnvironmentProxyIsIgnored(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "direct") }))
	defer srv.Close()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	if got, err := get(t, NewClient(Options{AllowPrivate: true}), srv.URL); err != nil || got != "direct" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestProxy(t *testing.T) {
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		io.WriteString(w, "by proxy")
	}))
	defer proxy.Close()
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Proxy: u}
	// A name that only the proxy can resolve passes; what is known to be private
	// does not, in whatever spelling.
	if got, err := get(t, NewClient(o), "http://only-the-proxy-knows.invalid/x"); err != nil || got != "by proxy" {
		t.Errorf("%q, %v", got, err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "2130706433", "169.254.169.254", "[::1]"} {
		_, err := get(t, NewClient(o), "http://"+host+"/")
		var b *Blocked
		if !errors.As(err, &b) {
			t.Errorf("%s: err = %v, want Blocked", host, err)
		}
	}
	if len(asked) != 1 {
		t.Errorf("the proxy was asked for %v", asked)
	}
}
