package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// SOCKS version 5 as RFC 1928 has it, with no authentication and CONNECT alone.
const (
	socksVersion   = 5
	socksNoAuth    = 0
	socksNoMethod  = 0xff
	socksConnect   = 1
	socksAddrIPv4  = 1
	socksAddrName  = 3
	socksAddrIPv6  = 4
	socksSucceeded = 0

	socksFailed      = 1
	socksRefused     = 2
	socksNoNetwork   = 3
	socksNoHost      = 4
	socksConnRefused = 5
	socksExpired     = 6
	socksNoCommand   = 7
	socksNoAddress   = 8
)

var errSOCKS = errors.New("not a request of SOCKS that is understood")

// serveSOCKS serves a client whose first byte was that of SOCKS.
func (p *Proxy) serveSOCKS(c *client) {
	if !p.greet(c) {
		return
	}
	host, port, reply, err := readSOCKS(c)
	if err != nil {
		if reply != socksSucceeded {
			answerSOCKS(c, reply)
		}
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	t, f := p.parseTarget(host, strconv.Itoa(int(port)))
	if f != nil {
		answerSOCKS(c, f.reply)
		return
	}
	l, f := p.reach(p.ctx, t)
	if f != nil {
		answerSOCKS(c, f.reply)
		return
	}
	defer l.Close()
	if answerSOCKS(c, socksSucceeded) {
		p.tunnel(c, nil, l, t)
	}
}

// greet agrees on no authentication.
func (p *Proxy) greet(c *client) bool {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return false
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c, methods); err != nil {
		return false
	}
	chosen := byte(socksNoMethod)
	for _, m := range methods {
		if m == socksNoAuth {
			chosen = socksNoAuth
		}
	}
	_, err := c.Write([]byte{socksVersion, chosen})
	return err == nil && chosen == socksNoAuth
}

// readSOCKS reads what is asked for. With an error there may be a reply to give.
func readSOCKS(r io.Reader) (host string, port uint16, reply byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", 0, 0, err
	}
	if head[0] != socksVersion {
		return "", 0, socksFailed, errSOCKS
	}
	var raw []byte
	switch head[3] {
	case socksAddrIPv4:
		raw = make([]byte, net.IPv4len)
	case socksAddrIPv6:
		raw = make([]byte, net.IPv6len)
	case socksAddrName:
		var length [1]byte
		if _, err := io.ReadFull(r, length[:]); err != nil {
			return "", 0, 0, err
		}
		raw = make([]byte, length[0])
	default:
		return "", 0, socksNoAddress, errSOCKS
	}
	if _, err := io.ReadFull(r, raw); err != nil {
		return "", 0, 0, err
	}
	var tail [2]byte
	if _, err := io.ReadFull(r, tail[:]); err != nil {
		return "", 0, 0, err
	}
	if head[1] != socksConnect {
		return "", 0, socksNoCommand, errSOCKS
	}
	host = string(raw)
	if head[3] != socksAddrName {
		a, _ := netip.AddrFromSlice(raw)
		host = a.String()
	}
	return host, binary.BigEndian.Uint16(tail[:]), socksSucceeded, nil
}

// answerSOCKS answers a request. The address that we connect from is not the client's
// business and is left empty.
func answerSOCKS(c *client, reply byte) bool {
	_, err := c.Write([]byte{socksVersion, reply, 0, socksAddrIPv4, 0, 0, 0, 0, 0, 0})
	return err == nil
}
