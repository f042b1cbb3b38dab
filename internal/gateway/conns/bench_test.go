package conns

import (
	"fmt"
	"log/slog"
	"net"
	"testing"
)

// BenchmarkRequest is what the pool costs one request: the same however many
// connections and peers there are.
func BenchmarkRequest(b *testing.B) {
	for _, open := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(open), func(b *testing.B) {
			p := New(nil, open, slog.New(slog.DiscardHandler))
			all := make([]*Conn, open)
			for i := range all {
				all[i] = &Conn{pool: p}
				p.open++
				p.peers.add(all[i], peerOf(&net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>6), byte(i))}))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c := all[i%open]
				c.active.Store(true)
				if err := c.Hold("ada"); err != nil {
					b.Fatal(err)
				}
				c.rest()
			}
		})
	}
}
