package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// private gives a name a private address.
func private(r *rig, name string) { r.names[name] = []netip.Addr{netip.MustParseAddr("10.1.1.1")} }

// gone waits for the end of a connection, however it ends.
func gone(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, c); err != nil {
		if n, ok := err.(net.Error); ok && n.Timeout() {
			t.Fatal("it is still there")
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	r := newRig(t, []string{"example.org"}, func(o *Options) { o.MaxConns = 2 })
	r.host("example.org", 443, serve(t, echo))
	a, _, _, _ := r.connect("example.org:443")
	r.connect("example.org:443")
	gone(t, r.client())
	_ = a.Close()
	r.reported(1)
	for { // until the place is free
		c := r.client()
		fmt.Fprint(c, "CONNECT example.org:443 HTTP/1.1\r\nHost: a\r\n\r\n")
		if n, _ := c.Read(make([]byte, 100)); n > 0 {
			return
		}
	}
}

func TestSilentClients(t *testing.T) {
	r := newRig(t, []string{"example.org"}, func(o *Options) { o.HeaderTimeout = 50 * time.Millisecond })
	r.host("example.org", 443, serve(t, echo))
	for _, send := range []string{"", "C", "CONNECT example.org:443 HTTP/1.1\r\n", "\x05", "\x05\x01\x00", "\x05\x01\x00\x05\x01\x00\x03"} {
		c := r.client()
		_, _ = io.WriteString(c, send)
		gone(t, c)
	}
	if len(r.dialed) != 0 {
		t.Errorf("connected to %s", r.dialed)
	}
}

func TestIdle(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*Options)
		send string
	}{
		{"nothing moved ever", func(o *Options) { o.FirstByte = 50 * time.Millisecond }, ""},
		{"half a ClientHello", func(o *Options) { o.FirstByte = 50 * time.Millisecond }, "\x16\x03\x01"},
		{"nothing moves any more", func(o *Options) { o.Idle = 50 * time.Millisecond }, "hello"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, []string{"example.org"}, tt.set)
			r.host("example.org", 443, serve(t, echo))
			c, _, _, _ := r.connect("example.org:443")
			_, _ = io.WriteString(c, tt.send)
			gone(t, c)
			d := r.one()
			want(t, "the reason", d.Reason, "nothing moved for 50ms")
			sent := int64(0)
			if tt.send == "hello" {
				sent = 5
			}
			if !d.Allowed || d.Sent != sent {
				t.Errorf("reported %+v", d)
			}
		})
	}
}

// TestSlowReader holds that a client that does not read does not keep its connection
// for ever, in either direction.
func TestSlowReader(t *testing.T) {
	r := newRig(t, []string{"example.org"}, func(o *Options) { o.Idle = 100 * time.Millisecond })
	r.host("example.org", 80, serve(t, func(c *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			if _, err := c.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}))
	c := r.client()
	fmt.Fprint(c, "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n")
	tunnel, _, _, _ := r.connect("example.org:80")
	fmt.Fprint(tunnel, "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")
	r.reported(2)
	gone(t, c)
	gone(t, tunnel)
}

// TestSlowBody holds that a request whose body never comes ends.
func TestSlowBody(t *testing.T) {
	r := newRig(t, []string{"example.org"}, func(o *Options) { o.Idle = 100 * time.Millisecond })
	r.host("example.org", 80, serve(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }))
	c := r.client()
	fmt.Fprint(c, "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nContent-Length: 100\r\n\r\nabc")
	gone(t, c)
	r.one()
}

func TestMaxBytes(t *testing.T) {
	r := newRig(t, []string{"example.org"}, func(o *Options) { o.MaxBytes = 1 << 20 })
	r.host("example.org", 443, serve(t, echo))
	c, _, _, _ := r.connect("example.org:443")
	go func() {
		for {
			if _, err := c.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}()
	gone(t, c)
	d := r.one()
	want(t, "the reason", d.Reason, "1048576")
	if d.Sent+d.Received <= 1<<20 || d.Sent+d.Received > 2<<20 {
		t.Errorf("reported %+v", d)
	}
}

func TestConnectTimeout(t *testing.T) {
	r := newRig(t, []string{"example.org"}, func(o *Options) {
		o.ConnectTimeout = 50 * time.Millisecond
		o.Dial = silent
	})
	r.host("example.org", 443, "")
	if _, _, status, body := r.connect("example.org:443"); status != 504 {
		t.Errorf("status %d: %s", status, body)
	}
	if d := r.one(); !d.Allowed || d.Reason == "" || d.Address != "" {
		t.Errorf("reported %+v", d)
	}
}
