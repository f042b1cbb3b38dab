package conns

import (
	"net"
	"net/netip"
)

// A peer is where connections come from: one IPv4 address, one network of 64
// bits of IPv6, which is what one customer has, or this machine. Clients behind a
// proxy or NAT are one peer.
type peer struct {
	from  netip.Prefix
	conns int            // open, spare or not
	count int            // of spare
	spare [2]list[*Conn] // strangers, then those that brought a request of an admitted principal
	place node[*peer]    // among the peers with as many spare connections
}

// here is the peer of all connections from this machine.
var here = netip.PrefixFrom(netip.IPv6Loopback(), 128)

// peerOf is where an address belongs. Addresses that are none of TCP are one peer.
func peerOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.IsLoopback() {
		return here
	}
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	from, _ := ip.Prefix(bits)
	return from
}

// peers finds the peer that has the most spare connections.
type peers struct {
	byAddr map[netip.Prefix]*peer
	ranks  []*list[*peer] // by the number of spare connections
	top    int            // the greatest rank that has a peer
}

func (s *peers) init() {
	s.byAddr = make(map[netip.Prefix]*peer)
	s.ranks = []*list[*peer]{newList[*peer]()}
}

// add takes in a new connection, which is spare.
func (s *peers) add(c *Conn, from netip.Prefix) {
	p := s.byAddr[from]
	if p == nil {
		p = &peer{from: from}
		p.spare[0].init()
		p.spare[1].init()
		p.place.v = p
		s.byAddr[from] = p
		s.ranks[0].push(&p.place)
	}
	p.conns++
	c.peer = p
	c.place.v = c
	s.spare(c)
}

// remove forgets a connection.
func (s *peers) remove(c *Conn) {
	s.unspare(c)
	p := c.peer
	if p.conns--; p.conns == 0 {
		p.place.remove()
		delete(s.byAddr, p.from)
	}
}

// spare makes a connection the last of its like that is closed.
func (s *peers) spare(c *Conn) {
	s.unspare(c)
	among := &c.peer.spare[0]
	if c.known {
		among = &c.peer.spare[1]
	}
	among.push(&c.place)
	s.move(c.peer, 1)
}

// unspare keeps a connection from being closed.
func (s *peers) unspare(c *Conn) {
	if c.place.linked() {
		c.place.remove()
		s.move(c.peer, -1)
	}
}

// move puts a peer in its rank after its number of spare connections has changed
// by one.
func (s *peers) move(p *peer, by int) {
	p.place.remove()
	p.count += by
	if p.count == len(s.ranks) {
		s.ranks = append(s.ranks, newList[*peer]())
	}
	s.ranks[p.count].push(&p.place)
	s.top = max(s.top, p.count)
	if by < 0 && s.ranks[s.top].empty() {
		s.top-- // the peer has just left it
	}
}

// quietest returns the spare connection to close next; nil when there is none.
func (s *peers) quietest() *Conn {
	for s.top > 0 {
		p := s.ranks[s.top].first()
		from := &p.spare[0]
		if from.empty() {
			from = &p.spare[1]
		}
		c := from.first()
		if !c.input.CompareAndSwap(someInput, passedOver) {
			return c
		}
		s.spare(c)
	}
	return nil
}
