package egress

import (
	"context"
	"io"
	"net/netip"
	"testing"
)

// A panic in one connection of a sandbox ends that connection, by both ways of
// asking, and the proxy goes on.
func TestPanicEndsOneConnection(t *testing.T) {
	r := newRig(t, []string{"example.org", "bad.example"}, func(o *Options) {
		resolve := o.Resolve
		o.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			if name == "bad.example" {
				panic("a mistake in a lookup")
			}
			return resolve(ctx, name)
		}
	})
	r.host("example.org", 443, serve(t, echo))
	for _, send := range []string{
		string(append([]byte{5, 2, 2, 0}, ask("bad.example", 443)...)),
		"CONNECT bad.example:443 HTTP/1.1\r\nHost: bad.example:443\r\n\r\n",
	} {
		c := r.client()
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(c) // it may end with a reset
		if len(got) > 2 {
			t.Errorf("answered %q", got)
		}
	}
	c, in, status, body := r.connect("example.org:443")
	if status != 200 {
		t.Fatalf("afterwards: %d %s", status, body)
	}
	if _, err := io.WriteString(c, "ping"); err != nil {
		t.Fatal(err)
	}
	var got [4]byte
	if _, err := io.ReadFull(in, got[:]); err != nil || string(got[:]) != "ping" {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}
