package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// closed lists what is not public, by the registries of special addresses, with
// single public ones that clouds answer themselves. Of IPv6 only 2000::/3 is
// public to begin with.
var closed = prefixes(
	"0.0.0.0/8",        // this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // shared by carriers; a cloud's metadata
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // a cloud's own
	"169.254.0.0/16",   // link-local; the metadata of most clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocols; a cloud's metadata
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved and broadcast
	"2001::/23",        // protocols, Teredo among them
	"2001:db8::/32",    // documentation
	"2002::/16",        // 6to4, which wraps any IPv4 address
	"3fff::/20",        // documentation
)

var (
	unicast = netip.MustParsePrefix("2000::/3")
	nat64   = netip.MustParsePrefix("64:ff9b::/96") // the IPv4 address is in the last four bytes
)

func prefixes(all ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(all))
	for i, s := range all {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// public reports whether a is an ordinary address of the internet. One that
// wraps another is judged by what it wraps.
func public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = plain(a)
	if a.Is6() && !unicast.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(closed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// plain is an address without what it is wrapped in.
func plain(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// resolve asks the system. A name with a dot in it is meant as it is: with the
// search domains of this machine it would be another one.
func resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if strings.Contains(name, ".") {
		name += "."
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// interfaces returns the addresses of this machine.
func interfaces() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own, nil
}
