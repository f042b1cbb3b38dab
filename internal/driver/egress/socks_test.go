package egress

import (
	"bytes"
	"io"
	"testing"
)

// ask is a request of SOCKS for a name.
func ask(name string, port uint16) []byte {
	b := append([]byte{5, 1, 0, socksAddrName, byte(len(name))}, name...)
	return append(b, byte(port>>8), byte(port))
}

func TestSOCKS(t *testing.T) {
	ok := []byte{5, 0}
	reply := func(code byte) []byte { return append([]byte{5, 0, 5, code, 0, 1}, make([]byte, 6)...) }
	for _, tt := range []struct {
		name string
		send []byte
		want []byte
	}{
		{"a name", append(ask("example.org", 443), "ping"...), append(reply(socksSucceeded), "ping"...)},
		{"a name that is not allowed", ask("evil.net", 443), reply(socksRefused)},
		{"another port", ask("example.org", 444), reply(socksRefused)},
		{"a private address", ask("inside.example", 443), reply(socksRefused)},
		{"no such name", ask("gone.example", 443), reply(socksNoHost)},
		{"no listener", ask("example.org", 80), reply(socksConnRefused)},
		{"an address as a name", append(ask("10.0.0.5", 443), "x"...), append(reply(socksSucceeded), 'x')},
		{"an address in disguise", ask("0x7f.1", 443), reply(socksFailed)},
		{"an empty name", ask("", 443), reply(socksFailed)},
		{"IPv4", append([]byte{5, 1, 0, 1, 10, 0, 0, 5, 1, 187}, "x"...), append(reply(socksSucceeded), 'x')},
		{"IPv4 that is not allowed", []byte{5, 1, 0, 1, 127, 0, 0, 1, 1, 187}, reply(socksRefused)},
		{"IPv6 that wraps IPv4", append([]byte{5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 5, 1, 187}, "x"...), append(reply(socksSucceeded), 'x')},
		{"IPv6 that is not allowed", []byte{5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 187}, reply(socksRefused)},
		{"BIND", []byte{5, 2, 0, 1, 10, 0, 0, 5, 1, 187}, reply(socksNoCommand)},
		{"UDP", []byte{5, 3, 0, 1, 10, 0, 0, 5, 1, 187}, reply(socksNoCommand)},
		{"another kind of address", []byte{5, 1, 0, 2, 10, 0, 0, 5, 1, 187}, reply(socksNoAddress)},
		{"another version", []byte{4, 1, 0, 1, 10, 0, 0, 5, 1, 187}, reply(socksFailed)},
		{"half a request", []byte{5, 1, 0, 3, 200, 'a'}, ok},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, []string{"example.org", "*.example", "10.0.0.5"}, nil)
			r.host("example.org", 443, serve(t, echo))
			r.hosts["10.0.0.5:443"] = r.hosts[site+":443"]
			private(r, "inside.example")
			c := r.client()
			if _, err := c.Write(append([]byte{5, 2, 2, 0}, tt.send...)); err != nil {
				t.Fatal(err)
			}
			_ = c.CloseWrite()
			got, _ := io.ReadAll(c) // which may end with a reset where something was not read
			wanted := tt.want
			if len(wanted) > 2 {
				wanted = append(ok, wanted[2:]...)
			}
			if !bytes.Equal(got, wanted) {
				t.Errorf("% x, want % x", got, wanted)
			}
		})
	}
}

func TestSOCKSMethods(t *testing.T) {
	r := newRig(t, []string{"example.org"}, nil)
	for _, tt := range []struct{ send, want []byte }{
		{[]byte{5, 1, 2}, []byte{5, 255}}, // a password only
		{[]byte{5, 0}, []byte{5, 255}},
		{[]byte{5}, nil},
		{[]byte{5, 200, 0}, nil},
	} {
		c := r.client()
		_, _ = c.Write(tt.send)
		_ = c.CloseWrite()
		if got, err := io.ReadAll(c); !bytes.Equal(got, tt.want) || err != nil {
			t.Errorf("% x: % x, %v, want % x", tt.send, got, err, tt.want)
		}
	}
}

func FuzzSOCKS(f *testing.F) {
	f.Add(ask("example.org", 443))
	f.Add([]byte{5, 1, 0, 1, 127, 0, 0, 1, 1, 187})
	f.Fuzz(func(t *testing.T, b []byte) {
		host, _, reply, err := readSOCKS(bytes.NewReader(b))
		if err != nil && host != "" || err == nil && reply != socksSucceeded {
			t.Fatalf("%q %d %v", host, reply, err)
		}
	})
}
