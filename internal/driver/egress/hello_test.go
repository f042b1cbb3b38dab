package egress

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

// hello is the ClientHello of a real client.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		_ = theirs.Close()
	}()
	_ = ours.SetDeadline(time.Now().Add(20 * time.Second))
	head := make([]byte, recordHead)
	if _, err := io.ReadFull(ours, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(ours, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// split spreads a ClientHello over records of so many bytes.
func split(record []byte, size int) (out []byte) {
	for part := range slices.Chunk(record[recordHead:], size) {
		out = append(out, recordHandshake, 3, 1, byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func TestReadHello(t *testing.T) {
	plain := hello(t, "example.org")
	none := hello(t, "")
	damaged := slices.Clone(plain)
	damaged[recordHead+messageHead+34] = 255 // the session is longer than all of it
	alert := []byte{21, 3, 1, 0, 2, 1, 90}
	for _, tt := range []struct {
		name  string
		in    []byte
		state int
		names []string
	}{
		{"a ClientHello", plain, helloWhole, []string{"example.org"}},
		{"one without a name", none, helloWhole, nil},
		{"one in many records", split(plain, 7), helloWhole, []string{"example.org"}},
		{"one with more behind it", append(slices.Clone(plain), "more"...), helloWhole, []string{"example.org"}},
		{"nothing", nil, helloPart, nil},
		{"one byte", plain[:1], helloPart, nil},
		{"all but one byte", plain[:len(plain)-1], helloPart, nil},
		{"half in records", split(plain, 7)[:100], helloPart, nil},
		{"HTTP", []byte("GET / HTTP/1.1"), helloNone, nil},
		{"SSH", []byte("SSH-2.0"), helloNone, nil},
		{"a byte that looks like it", []byte{22, 1}, helloNone, nil},
		{"damaged", damaged, helloBad, nil},
		{"an alert before it", append(alert, plain...), helloBad, nil},
		{"an empty record before it", append([]byte{22, 3, 1, 0, 0}, plain...), helloBad, nil},
		{"something else in between", append(split(plain[:recordHead+20], 20), alert...), helloBad, nil},
		{"no ClientHello", []byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, helloBad, nil},
		{"one that is too long", []byte{22, 3, 1, 0, 4, 1, 255, 255, 255}, helloBad, nil},
		{"a record that is too long", []byte{22, 3, 1, 255, 255, 1}, helloBad, nil},
	} {
		names, state := readHello(tt.in)
		if state != tt.state || !slices.Equal(names, tt.names) {
			t.Errorf("%s: %d %q, want %d %q", tt.name, state, names, tt.state, tt.names)
		}
	}
}

func FuzzReadHello(f *testing.F) {
	plain := hello(f, "example.org")
	f.Add(plain)
	f.Add(split(plain, 50))
	f.Add([]byte("GET /"))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, state := readHello(b)
		if state != helloWhole && names != nil {
			t.Fatalf("state %d with %q", state, names)
		}
		// More bytes never change what was decided.
		if more, again := readHello(append(slices.Clone(b), 0)); state != helloPart && (again != state || !slices.Equal(more, names)) {
			t.Fatalf("%d %q becomes %d %q", state, names, again, more)
		}
	})
}

func TestTLS(t *testing.T) {
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "behind TLS") }))
	site.Config.ErrorLog = log.New(io.Discard, "", 0) // some clients are cut off
	site.StartTLS()
	defer site.Close()
	for _, tt := range []struct {
		name, target, sni string
		ok                bool
	}{
		{"the same name", "example.org:443", "example.org", true},
		{"the same in other letters", "example.org:443", "EXAMPLE.org", true},
		{"no name", "example.org:443", "", true},
		{"another name", "example.org:443", "evil.net", false},
		{"another allowed name", "example.org:443", "www.example.org", false},
		{"an address that is allowed", "10.0.0.5:443", "whatever.net", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, []string{"example.org", "*.example.org", "10.0.0.5"}, nil)
			r.host("example.org", 443, site.Listener.Addr().String())
			r.hosts["10.0.0.5:443"] = site.Listener.Addr().String()
			c, _, status, body := r.connect(tt.target)
			if status != 200 {
				t.Fatal(status, body)
			}
			secure := tls.Client(c, &tls.Config{ServerName: tt.sni, InsecureSkipVerify: true})
			err := secure.Handshake()
			if tt.ok {
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprint(secure, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
				got, _ := io.ReadAll(secure)
				want(t, "the answer", string(got), "behind TLS")
				_ = c.Close()
			} else if err == nil {
				t.Error("the handshake went through")
			} else {
				want(t, "the client's error", err.Error(), "unrecognized name")
			}
			d := r.one()
			if d.Allowed != tt.ok || d.Protocol != ProtocolTLS || tt.ok != (d.Reason == "") {
				t.Errorf("reported %+v", d)
			}
			if !tt.ok {
				if d.Sent != 0 {
					t.Errorf("%d bytes were sent", d.Sent)
				}
				want(t, "the reason", d.Reason, `"`+tt.sni+`"`)
			}
		})
	}
}

// TestSlowHello holds that a ClientHello that comes a byte at a time is held back
// until its name is known.
func TestSlowHello(t *testing.T) {
	heard := make(chan []byte, 1)
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 443, serve(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		heard <- b
	}))
	for _, name := range []string{"example.org", "evil.net"} {
		c, in, _, _ := r.connect("example.org:443")
		record := hello(t, name)
		for _, b := range split(record, 100) {
			if _, err := c.Write([]byte{b}); err != nil {
				break
			}
		}
		_ = c.CloseWrite()
		_, _ = io.ReadAll(in)
		got := <-heard
		if name == "example.org" && !bytes.Equal(got, split(record, 100)) || name != "example.org" && len(got) != 0 {
			t.Errorf("%s: %d bytes arrived", name, len(got))
		}
	}
}
