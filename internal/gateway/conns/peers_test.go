package conns

import (
	"math/rand/v2"
	"net"
	"testing"
)

// TestQuietestIsOfThePeerWithTheMost makes every kind of change in any order and
// holds the choice against a count of all.
func TestQuietestIsOfThePeerWithTheMost(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var s peers
	s.init()
	var open []*Conn
	spare := make(map[*Conn]bool)
	for step := range 20_000 {
		if len(open) == 0 || len(open) < 60 && rnd.IntN(3) == 0 {
			c := new(Conn)
			s.add(c, peerOf(&net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(rnd.IntN(8)))}))
			open, spare[c] = append(open, c), true
		} else {
			i := rnd.IntN(len(open))
			c := open[i]
			switch rnd.IntN(4) {
			case 0:
				s.remove(c)
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
				delete(spare, c)
			case 1:
				s.spare(c)
				spare[c] = true
			case 2:
				s.unspare(c)
				delete(spare, c)
			case 3:
				c.input.CompareAndSwap(noInput, someInput)
			}
		}
		count, most := make(map[*peer]int), 0
		for c := range spare {
			count[c.peer]++
			most = max(most, count[c.peer])
		}
		c := s.quietest()
		if c == nil {
			if most != 0 {
				t.Fatalf("step %d: none is found of %d", step, most)
			}
			continue
		}
		if !spare[c] || count[c.peer] != most {
			t.Fatalf("step %d: spare is %v, the peer has %d, the most are %d", step, spare[c], count[c.peer], most)
		}
	}
	for _, c := range open {
		s.remove(c)
	}
	if len(s.byAddr) != 0 || s.top != 0 || !s.ranks[0].empty() {
		t.Errorf("%d peers are left", len(s.byAddr))
	}
}
