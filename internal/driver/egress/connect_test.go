package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestConnect(t *testing.T) {
	r := newRig(t, []string{"example.org:7000"}, nil)
	r.host("example.org", 7000, serve(t, echo))
	c, in, status, _ := r.connect("EXAMPLE.org.:7000")
	if status != 200 {
		t.Fatal(status)
	}
	fmt.Fprint(c, "hello")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(in)
	if string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	d := r.one()
	d.Began, d.Took = time.Time{}, 0
	if d != (Connection{Host: "example.org", Port: 7000, Address: site + ":7000", Protocol: ProtocolTCP, Allowed: true, Sent: 5, Received: 5}) {
		t.Errorf("reported %+v", d)
	}
}

// TestEarlyBytes holds that what comes in one packet with the request is part of
// the tunnel.
func TestEarlyBytes(t *testing.T) {
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 443, serve(t, echo))
	c := r.client()
	fmt.Fprint(c, "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\nearly")
	_ = c.CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(got), "\r\n\r\nearly") {
		t.Errorf("%q, %v", got, err)
	}
	if d := r.one(); d.Sent != 5 || d.Received != 5 {
		t.Errorf("reported %+v", d)
	}
}

func TestRefused(t *testing.T) {
	addr := func(s ...string) (all []netip.Addr) {
		for _, a := range s {
			all = append(all, netip.MustParseAddr(a))
		}
		return all
	}
	names := map[string][]netip.Addr{
		"loop.example":     addr("127.0.0.1"),
		"loop6.example":    addr("::1"),
		"mapped.example":   addr("::ffff:127.0.0.1"),
		"nat64.example":    addr("64:ff9b::a9fe:a9fe"),
		"private.example":  addr("10.1.2.3", "192.168.0.1", "172.16.0.1"),
		"ula.example":      addr("fd00:ec2::254"),
		"meta.example":     addr("169.254.169.254"),
		"azure.example":    addr("168.63.129.16"),
		"alibaba.example":  addr("100.100.100.200"),
		"multi.example":    addr("224.0.0.1", "ff02::1"),
		"nowhere.example":  addr("0.0.0.0", "::"),
		"link.example":     addr("fe80::1"),
		"self.example":     addr("198.41.0.4"),
		"self64.example":   addr("64:ff9b::c629:4"),
		"mixed.example":    addr("10.0.0.1", site),
		"listed.example":   addr("10.0.0.5"),
		"unlisted.example": addr(site),
	}
	allow := []string{"*.example", "gone.example", "10.0.0.5", "8.8.8.8:53", "plain.org"}
	for _, tt := range []struct {
		target string
		status int
		body   string
	}{
		{"other.org:443", 403, `other.org:443 is not in the list of what this sandbox may reach; add "other.org" to servers.web.sandbox.network`},
		{"plain.org:8443", 403, `add "plain.org:8443" to servers.web.sandbox.network`},
		{"sub.plain.org:443", 403, "sub.plain.org"},
		{"loop.example:443", 403, `loop.example is 127.0.0.1, which is not a public address; add "127.0.0.1"`},
		{"loop6.example:443", 403, "::1, which is not a public address"},
		{"mapped.example:443", 403, "127.0.0.1, which is not a public address"},
		{"nat64.example:443", 403, "not a public address"},
		{"private.example:443", 403, "not a public address"},
		{"ula.example:443", 403, "not a public address"},
		{"meta.example:80", 403, "not a public address"},
		{"azure.example:80", 403, "not a public address"},
		{"alibaba.example:80", 403, "not a public address"},
		{"multi.example:80", 403, "not a public address"},
		{"nowhere.example:80", 403, "not a public address"},
		{"link.example:80", 403, "not a public address"},
		{"self.example:80", 403, "this machine"},
		{"self64.example:80", 403, "this machine"},
		{"mixed.example:443", 200, ""},
		{"listed.example:443", 200, ""},
		{"unlisted.example:443", 200, ""},
		{"10.0.0.5:443", 200, ""},
		{"10.0.0.6:443", 403, `add "10.0.0.6"`},
		{"8.8.8.8:53", 502, "refused the connection"},
		{"8.8.8.8:443", 403, `add "8.8.8.8"`},
		{"127.0.0.1:22", 403, `add "127.0.0.1:22"`},
		{"[::1]:443", 403, `add "::1"`},
		{"[::ffff:10.0.0.5]:443", 200, ""},
		{"[::ffff:127.0.0.1]:443", 403, "127.0.0.1:443 is not in the list"},
		{"169.254.169.254:80", 403, "not in the list"},
		{"2130706433:443", 400, "like an address"},
		{"0x7f.1:443", 400, "like an address"},
		{"[fe80::1%25eth0]:443", 400, "zone"},
		{"gone.example:443", 502, "no such name"},
		{"example", 400, "host and a port"},
		{"loop.example:0", 400, "1 to 65535"},
	} {
		t.Run(tt.target, func(t *testing.T) {
			r := newRig(t, allow, func(o *Options) {
				o.Own = func() ([]netip.Addr, error) { return addr("198.41.0.4", "127.0.0.1"), nil }
			})
			r.names = names
			real := serve(t, echo)
			r.hosts[site+":443"], r.hosts["10.0.0.5:443"] = real, real
			c, _, status, body := r.connect(tt.target)
			if status != tt.status {
				t.Errorf("status %d, want %d: %s", status, tt.status, body)
			}
			want(t, "the answer", body, tt.body)
			if strings.Contains(body, "10.9.8.7") {
				t.Errorf("the answer names the resolver: %s", body)
			}
			_ = c.Close()
			if tt.target == "example" {
				return
			}
			d := r.one()
			if d.Allowed != (status == 200 || status == 502) || (d.Reason == "") != (status == 200) {
				t.Errorf("reported %+v", d)
			}
			if status != 200 {
				want(t, "the reason", body, d.Reason)
			}
			if status == 403 || status == 400 {
				if len(r.dialed) != 0 {
					t.Errorf("it was connected to %s", r.dialed)
				}
			}
			if status == 403 && strings.Contains(body, "is not in the list") && len(r.lookup) != 0 {
				t.Errorf("it was looked up: %s", r.lookup)
			}
		})
	}
}

// TestRebinding holds that the address that was judged is the one that is
// connected to: the name is looked up once and not dialled.
func TestRebinding(t *testing.T) {
	r := newRig(t, []string{"example.org"}, nil)
	real := serve(t, echo)
	turns := 0
	r.o.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
		if turns++; turns > 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return []netip.Addr{netip.MustParseAddr(site)}, nil
	}
	r.hosts[site+":443"] = real
	_, _, status, _ := r.connect("example.org:443")
	if status != 200 || turns != 1 || len(r.dialed) != 1 || r.dialed[0] != site+":443" {
		t.Errorf("status %d after %d lookups, connected to %s", status, turns, r.dialed)
	}
	if _, _, status, _ = r.connect("example.org:443"); status != 403 || len(r.dialed) != 1 {
		t.Errorf("the second time: status %d, connected to %s", status, r.dialed)
	}
}

// TestNextAddress holds that a name with several addresses is tried at each.
func TestNextAddress(t *testing.T) {
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 443, serve(t, echo))
	r.names["example.org"] = []netip.Addr{netip.MustParseAddr("93.184.216.1"), netip.MustParseAddr("2606:4700::1"), netip.MustParseAddr(site)}
	if _, _, status, body := r.connect("example.org:443"); status != 200 || len(r.dialed) != 3 {
		t.Errorf("status %d %s, connected to %s", status, body, r.dialed)
	}
}

func TestOwnUnknown(t *testing.T) {
	r := newRig(t, []string{"example.org"}, func(o *Options) {
		o.Own = func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }
	})
	r.host("example.org", 443, serve(t, echo))
	if _, _, status, _ := r.connect("example.org:443"); status != 403 || len(r.dialed) != 0 {
		t.Errorf("status %d, connected to %s", status, r.dialed)
	}
}

// TestHalfClosed holds that a side that has ended does not end the other.
func TestHalfClosed(t *testing.T) {
	heard := make(chan string, 1)
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 443, serve(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "all I have to say")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		heard <- string(b)
	}))
	c, in, _, _ := r.connect("example.org:443")
	if got, err := io.ReadAll(in); string(got) != "all I have to say" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	fmt.Fprint(c, "and I go on")
	_ = c.CloseWrite()
	if got := <-heard; got != "and I go on" {
		t.Errorf("heard %q", got)
	}
	if d := r.one(); d.Sent != 11 || d.Received != 17 || d.Reason != "" {
		t.Errorf("reported %+v", d)
	}
}

// TestServerSpeaksFirst holds that a server need not wait for the client's first byte.
func TestServerSpeaksFirst(t *testing.T) {
	r := newRig(t, []string{"example.org:22"}, nil)
	r.host("example.org", 22, serve(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "SSH-2.0-x\r\n")
		echo(c)
	}))
	c, in, _, _ := r.connect("example.org:22")
	if line, err := in.ReadString('\n'); line != "SSH-2.0-x\r\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(c, "ok")
	_ = c.CloseWrite()
	if got, _ := io.ReadAll(in); string(got) != "ok" {
		t.Errorf("%q", got)
	}
}

// TestManyBytes holds that the counts are exact for all that passes at once.
func TestManyBytes(t *testing.T) {
	const clients, size = 8, 3<<20 + 17
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 443, serve(t, echo))
	data := bytes.Repeat([]byte("0123456789abcdefg"), size/17+1)[:size]
	var wg sync.WaitGroup
	for range clients {
		c, in, status, _ := r.connect("example.org:443")
		if status != 200 {
			t.Fatal(status)
		}
		wg.Go(func() {
			_, _ = c.Write(data)
			_ = c.CloseWrite()
		})
		wg.Go(func() {
			if got, err := io.ReadAll(in); !bytes.Equal(got, data) || err != nil {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
	}
	wg.Wait()
	for _, d := range r.reported(clients) {
		if d.Sent != size || d.Received != size {
			t.Errorf("reported %+v", d)
		}
	}
}

func TestWrongRequests(t *testing.T) {
	for _, tt := range []struct{ send, want string }{
		{"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "400 Bad Request"},
		{"GET https://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n", "does not speak https"},
		{"GET ftp://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n", "does not speak ftp"},
		{"OPTIONS * HTTP/1.1\r\nHost: example.org\r\n\r\n", "400 Bad Request"},
		{"CONNECT http://example.org:443/ HTTP/1.1\r\nHost: a\r\n\r\n", "400 Bad Request"},
		{"CONNECT example.org:443@evil.net:443 HTTP/1.1\r\nHost: a\r\n\r\n", "400 Bad Request"},
		{"CONNECT evil.net:443/example.org:443 HTTP/1.1\r\nHost: a\r\n\r\n", "400 Bad Request"},
		{"GET http://example.org@evil.net/ HTTP/1.1\r\nHost: example.org\r\n\r\n", "evil.net:80 is not in the list"},
		{"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nHost: evil.net\r\n\r\n", "400 Bad Request"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 "},
		{"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "431 "},
		{"\x04\x01\x00\x50\x01\x02\x03\x04\x00\r\n\r\n", "400 Bad Request"},
	} {
		r := newRig(t, []string{"example.org"}, nil)
		r.host("example.org", 80, serve(t, echo))
		c := r.client()
		go func() { _, _ = io.WriteString(c, tt.send) }()
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 4096)
		n := 0
		for n < len(b) && !strings.Contains(string(b[:n]), tt.want) {
			m, err := c.Read(b[n:])
			if n += m; err != nil {
				break
			}
		}
		want(t, fmt.Sprintf("%.60q", tt.send), string(b[:n]), tt.want)
		if len(r.dialed) != 0 {
			t.Errorf("%.60q: connected to %s", tt.send, r.dialed)
		}
		_ = c.Close()
	}
}

func TestRealDefaults(t *testing.T) {
	p := New(Options{})
	defer p.Close()
	own, err := p.o.Own()
	if err != nil || len(own) == 0 {
		t.Errorf("the addresses of this machine are %v, %v", own, err)
	}
	if _, f := p.reach(t.Context(), target{host: "example.org", port: 443}); f == nil || f.status != http.StatusForbidden {
		t.Errorf("without a list: %v", f)
	}
}
