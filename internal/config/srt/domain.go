package srt

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
	named "github.com/tine-mcp/tine/internal/config/domains"
)

// A domain is one entry of a list: everything, an address, a name, or the names below one.
// Unlike an entry of a sandbox's network it is for all ports where it names none.
type domain struct {
	all   bool
	addr  netip.Addr
	name  string
	below bool
	port  uint16 // 0 for all
}

func (d domain) String() string {
	host := d.name
	switch {
	case d.all:
		host = "*"
	case d.addr.Is6():
		host = "[" + d.addr.String() + "]"
	case d.addr.IsValid():
		host = d.addr.String()
	case d.below:
		host = "*." + d.name
	}
	if d.port != 0 {
		host += ":" + strconv.Itoa(int(d.port))
	}
	return host
}

func (d domain) onPort(port uint16) bool { return d.port == 0 || d.port == port }

func (d domain) hasName(name string, port uint16) bool {
	if !d.onPort(port) || d.addr.IsValid() {
		return false
	}
	return d.all || d.below && strings.HasSuffix(name, "."+d.name) || !d.below && name == d.name
}

func (d domain) hasAddress(a netip.Addr, port uint16) bool {
	return d.onPort(port) && (d.all || d.addr.IsValid() && d.addr == a)
}

// domains reads a list of domains.
func domains(o config.Object, key string, deny bool) (list []domain, shown []string) {
	for i, n := range items(o, key) {
		if n.Shape != config.ShapeString {
			o.Fail(n.Pos, "%s: want a domain, got %s", where(o, key, i), n.Shown())
			continue
		}
		d, err := parseDomain(n.Text, deny)
		if err != nil {
			o.Fail(n.Pos, "%s: %s: %v", where(o, key, i), n.Shown(), err)
			continue
		}
		list, shown = append(list, d), append(shown, d.String())
	}
	return list, shown
}

func where(o config.Object, key string, i int) string {
	return fmt.Sprintf("%s.%s[%d]", o.Path, key, i)
}

func parseDomain(text string, deny bool) (d domain, err error) {
	host, port, err := splitPort(text)
	if err != nil {
		return d, err
	}
	d.port = port
	if host == "*" && deny {
		d.all = true
		return d, nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return d, errors.New("an address with a zone belongs to one link; write it without %" + a.Zone())
		}
		d.addr = a.Unmap()
		return d, nil
	}
	if strings.Contains(host, "/") {
		return d, errors.New("write a name or an address alone, without a path, a scheme or a network")
	}
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		host, d.below = rest, true
	}
	if strings.Contains(host, "*") {
		return d, errors.New("* may only be the whole first part, as in *.example.com")
	}
	if d.name, err = named.Name(host); err != nil {
		return d, err
	}
	switch dots := strings.Contains(d.name, "."); {
	case d.below && !dots:
		return d, errors.New("it is too wide; write it like *.example.com")
	case !dots && d.name != "localhost":
		return d, errors.New("a name has a dot in it, unless it is localhost")
	}
	return d, nil
}

// splitPort takes the port off a domain; 0 for none.
func splitPort(text string) (host string, port uint16, err error) {
	host = text
	number := ""
	if rest, ok := strings.CutPrefix(text, "["); ok {
		inner, after, closed := strings.Cut(rest, "]")
		if !closed || !strings.Contains(inner, ":") {
			return "", 0, errors.New("brackets are for one IPv6 address, as in [2001:db8::1]:443")
		}
		host = inner
		if after == "" {
			return host, 0, nil
		}
		if number, ok = strings.CutPrefix(after, ":"); !ok {
			return "", 0, errors.New("after the bracket comes : and a port")
		}
	} else {
		switch strings.Count(text, ":") {
		case 0:
			return host, 0, nil
		case 1:
			host, number, _ = strings.Cut(text, ":")
		default:
			if strings.Contains(text, "://") {
				return "", 0, errors.New("it is a URL; write the name alone")
			}
			return "", 0, errors.New("write an IPv6 address in brackets, as in [2001:db8::1]:443")
		}
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || number[0] == '0' {
		if strings.HasPrefix(number, "//") {
			return "", 0, errors.New("it is a URL; write the name alone")
		}
		return "", 0, fmt.Errorf("the port %q is no number from 1 to 65535", config.Clip(number))
	}
	return host, uint16(n), nil
}

// MayReach reports whether a host, by name or address, may be connected to on a port. A
// name may only be resolved after this, and its addresses must be looked at as well: one that
// DeniesAddress denies is not reached, and of the others only public ones are, and those that
// AllowsAddress lists.
func (s *Settings) MayReach(host string, port uint16) bool {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if host = inner; !ok || !strings.Contains(host, ":") {
			return false
		}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return !s.DeniesAddress(a, port) && s.AllowsAddress(a, port)
	}
	name, err := named.Name(host)
	if err != nil {
		return false // nor is what a resolver might take for an address
	}
	has := func(d domain) bool { return d.hasName(name, port) }
	return !slices.ContainsFunc(s.denied, has) && slices.ContainsFunc(s.allowed, has)
}

// AllowsAddress reports whether an address is allowed by itself.
func (s *Settings) AllowsAddress(a netip.Addr, port uint16) bool {
	return a.Zone() == "" && slices.ContainsFunc(s.allowed, func(d domain) bool { return d.hasAddress(a.Unmap(), port) })
}

// DeniesAddress reports whether an address is denied by itself, whatever name led to it.
func (s *Settings) DeniesAddress(a netip.Addr, port uint16) bool {
	return a.Zone() != "" || slices.ContainsFunc(s.denied, func(d domain) bool { return d.hasAddress(a.Unmap(), port) })
}
