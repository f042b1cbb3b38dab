// Package publicnet keeps servers inside the binary, and those in sandboxes, from
// being used to reach what only the machine they run on can reach: loopback,
// private networks, link-local and metadata addresses. It judges the address that is dialled and
// not the name that was asked for, so that neither a DNS answer that changes
// between check and use nor a redirect gets past it.
package publicnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// closed lists what is not a public destination, by the IANA special-purpose
// registries, plus single public addresses that clouds answer themselves.
// IPv6 needs few entries because only 2000::/3 is public to begin with.
var closed = prefixes(
	"0.0.0.0/8",        // this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carrier-grade NAT; Alibaba's metadata
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // Azure's platform endpoint
	"169.254.0.0/16",   // link-local; metadata of most clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments; Oracle's metadata
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relay
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved and broadcast
	"2001::/23",        // protocol assignments, Teredo among them
	"2001:db8::/32",    // documentation
	"2002::/16",        // 6to4: wraps any IPv4 address
	"3fff::/20",        // documentation
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	// nat64 is the well-known translation prefix: a gateway passes the packet on
	// to the IPv4 address in the last four bytes.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(all ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(all))
	for i, s := range all {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// IsPublic reports whether ip is an ordinary address of the internet. An IPv4
// address that is wrapped in an IPv6 one is judged by what it wraps. One with a
// zone is of a network of this machine.
func IsPublic(ip netip.Addr) bool {
	if !ip.IsValid() || ip.Zone() != "" {
		return false
	}
	ip = Unwrap(ip)
	if ip.Is6() && !globalUnicast.Contains(ip) {
		return false
	}
	return !slices.ContainsFunc(closed, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Unwrap is an address without the IPv6 one that an IPv4 address may be wrapped in.
func Unwrap(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}

// Blocked is the error of a destination that is not public.
type Blocked struct {
	Host string // as it was asked for
	Addr netip.Addr
}

func (e *Blocked) Error() string {
	if e.Host == "" || e.Host == e.Addr.String() {
		return fmt.Sprintf("%s is not a public address", e.Addr)
	}
	return fmt.Sprintf("%s is %s, which is not a public address", e.Host, e.Addr)
}

// ParseHost reads a host of a URL as an address if it is one in any spelling
// that some resolver or proxy takes for one: dotted, IPv6, and the decimal,
// octal, hexadecimal and shortened forms of inet_aton.
func ParseHost(host string) (netip.Addr, bool) {
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip, true
	}
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 0, 64)
		if err != nil || strings.ContainsAny(p, "_+") || hasGoPrefix(p) {
			return netip.Addr{}, false
		}
		// The last part fills all bytes that are left.
		if i == len(parts)-1 {
			left := 8 * (4 - uint(i))
			if n >= 1<<left {
				return netip.Addr{}, false
			}
			v = v<<left | n
		} else if n > 255 {
			return netip.Addr{}, false
		} else {
			v = v<<8 | n
		}
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true
}

// hasGoPrefix finds the spellings of Go's literals that inet_aton has not.
func hasGoPrefix(s string) bool {
	s = strings.ToLower(s)
	return strings.HasPrefix(s, "0b") || strings.HasPrefix(s, "0o")
}
