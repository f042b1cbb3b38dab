// Package domains reads the list of what a sandboxed server may reach: names,
// names with all that is below them, addresses and networks, each with its
// ports. It knows nothing of how they are reached.
//
//	example.org          that name, on 80 and 443
//	*.example.org        every name below it, and not itself
//	example.org:8443     that name, on 8443 alone
//	10.0.0.5:5432        that address
//	10.0.0.0/8           every address of that network
//	[fd00::1]:5432       an IPv6 address; without a port the brackets may go
//
// Names are compared in ASCII, in small letters, without the dot at their end.
package domains

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// defaultPorts are those of an entry that names none.
var defaultPorts = []uint16{80, 443}

// List is what may be reached. Its zero value, and nil, is nothing. It is not
// changed after Parse, so it may be used at once.
type List struct {
	names map[string][]uint16 // ports by name
	below map[string][]uint16 // ports by the name that others are below of
	nets  []network
}

type network struct {
	prefix netip.Prefix
	ports  []uint16
}

// Parse reads a list. Its error names every entry that can't be used, and what
// to write instead.
func Parse(entries []string) (*List, error) {
	l := &List{names: make(map[string][]uint16), below: make(map[string][]uint16)}
	var faults []error
	for _, text := range entries {
		e, err := parseEntry(text)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		switch {
		case e.prefix.IsValid():
			l.nets = append(l.nets, network{e.prefix, e.ports})
		case e.below:
			l.below[e.name] = append(l.below[e.name], e.ports...)
		default:
			l.names[e.name] = append(l.names[e.name], e.ports...)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return l, nil
}

// Check says what is wrong with one entry, if anything is.
func Check(entry string) error {
	_, err := parseEntry(entry)
	return err
}

// AllowsName reports whether a name, as Name returns it, may be reached on a
// port. Its addresses must be looked at all the same.
func (l *List) AllowsName(name string, port uint16) bool {
	if l == nil {
		return false
	}
	if slices.Contains(l.names[name], port) {
		return true
	}
	for rest := name; ; {
		_, parent, ok := strings.Cut(rest, ".")
		if !ok {
			return false
		}
		if slices.Contains(l.below[parent], port) {
			return true
		}
		rest = parent
	}
}

// AllowsAddress reports whether an address is in the list itself, with this
// port.
func (l *List) AllowsAddress(a netip.Addr, port uint16) bool {
	if l == nil || a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	return slices.ContainsFunc(l.nets, func(n network) bool {
		return n.prefix.Contains(a) && slices.Contains(n.ports, port)
	})
}

// Entry is what to write into a list so that host and port are in it.
func Entry(host string, port uint16) string {
	if slices.Contains(defaultPorts, port) {
		return host
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}

// entry is one line of a list: a prefix, or a name.
type entry struct {
	prefix netip.Prefix
	name   string
	below  bool
	ports  []uint16
}

func parseEntry(text string) (e entry, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%q can't be allowed: %w", clip(text), err)
		}
	}()
	host, port, err := split(text)
	if err != nil {
		return e, err
	}
	e.ports = defaultPorts
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return e, fmt.Errorf("the port %q is no number from 1 to 65535", clip(port))
		}
		e.ports = []uint16{uint16(n)}
	}
	if strings.Contains(host, "/") {
		e.prefix, err = parsePrefix(host)
		return e, err
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return e, errors.New("an address with a zone belongs to one link; write it without %" + a.Zone())
		}
		a = a.Unmap()
		e.prefix = netip.PrefixFrom(a, a.BitLen())
		return e, nil
	}
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		host, e.below = rest, true
	}
	switch {
	case host == "*":
		return e, errors.New("it would be everything; list the names, or set sandbox.network to host")
	case strings.Contains(host, "*"):
		return e, errors.New("* may only be the whole first label, as in *.example.org")
	case strings.HasPrefix(host, "."):
		return e, fmt.Errorf("write *%s for the names below it", clip(host))
	}
	e.name, err = Name(host)
	return e, err
}

// split takes host and port apart.
func split(text string) (host, port string, err error) {
	if _, rest, ok := strings.Cut(text, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		return "", "", fmt.Errorf("it is a URL; write the name alone: %s", clip(host))
	}
	if strings.Contains(text, "@") {
		return "", "", errors.New("a name has no user in it")
	}
	host, port = text, ""
	ported := false
	if rest, ok := strings.CutPrefix(text, "["); ok {
		inner, after, closed := strings.Cut(rest, "]")
		if !closed || !strings.Contains(inner, ":") {
			return "", "", errors.New("brackets are for one IPv6 address or network, as in [fd00::1]:443")
		}
		host = inner
		if after != "" {
			if port, ported = strings.CutPrefix(after, ":"); !ported {
				return "", "", errors.New("after the bracket comes : and a port")
			}
		}
	} else if strings.Count(text, ":") == 1 {
		host, port, ported = strings.Cut(text, ":")
	}
	if ported && port == "" {
		return "", "", errors.New("there is no port after the colon")
	}
	if host == "" {
		return "", "", errors.New("there is no name in it")
	}
	return host, port, nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, errors.New("it is neither a name nor a network such as 10.0.0.0/8; paths can't be told apart")
	}
	if a := p.Addr(); a.Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, errors.New("it is wider than the IPv4 addresses; write the network as IPv4")
		}
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	if m := p.Masked(); m != p {
		return netip.Prefix{}, fmt.Errorf("the network of that address is %s", m)
	}
	if p.Bits() == 0 {
		return netip.Prefix{}, errors.New("it would be everything; list what is needed, or set sandbox.network to host")
	}
	return p, nil
}

// clip bounds what an error repeats.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
