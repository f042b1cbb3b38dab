package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/tine-mcp/tine/internal/config/domains"
	"github.com/tine-mcp/tine/internal/publicnet"
)

// maxTried is how many addresses of a name are tried.
const maxTried = 8

// A target is what a client asks for: a name, or an address.
type target struct {
	host string     // as names are compared, or the address as text
	addr netip.Addr // valid where it is an address
	port uint16
}

func (t target) String() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

// parseTarget reads host and port of a request. A bad one is reported too, since it may
// be meant to look like another one.
func (p *Proxy) parseTarget(host, port string) (target, *failure) {
	t := target{host: clip(host)}
	wrong := func(format string, args ...any) (target, *failure) {
		f := &failure{fmt.Sprintf(format, args...), http.StatusBadRequest, socksFailed, true}
		p.report(t, time.Now(), f)
		return t, f
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return wrong("the port %q is no number from 1 to 65535", clip(port))
	}
	t.port = uint16(n)
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return wrong("the address %s has a zone and can't be reached", t.host)
		}
		t.addr = a.Unmap()
		t.host = t.addr.String()
		return t, nil
	}
	name, err := domains.Name(host)
	if err != nil {
		return wrong("the host %q can't be reached: %v", t.host, err)
	}
	t.host = name
	return t, nil
}

// clip makes what a client wrote fit to be repeated.
func clip(s string) string {
	if len(s) > 100 {
		s = s[:100] + "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// A failure is why a target was not reached, in the words of each protocol.
type failure struct {
	text    string
	status  int  // of HTTP
	reply   byte // of SOCKS
	refused bool // by us
}

func (f *failure) Error() string { return f.text }

func refused(text string) *failure {
	return &failure{text, http.StatusForbidden, socksRefused, true}
}

// mend is what allows something.
func (p *Proxy) mend(host string, port uint16) string {
	key := "sandbox.network"
	if p.o.Server != "" {
		key = "servers." + p.o.Server + "." + key
	}
	return fmt.Sprintf("add %q to %s in the config", domains.Entry(host, port), key)
}

// named refuses what is not in the list. It does not look at addresses of names.
func (p *Proxy) named(t target) *failure {
	if t.addr.IsValid() {
		if p.o.Allow.AllowsAddress(t.addr, t.port) {
			return nil
		}
	} else if p.o.Allow.AllowsName(t.host, t.port) {
		return nil
	}
	return refused(fmt.Sprintf("%s is not in the list of what this sandbox may reach; %s if it should be", t, p.mend(t.host, t.port)))
}

// report reports a connection that was not made.
func (p *Proxy) report(t target, began time.Time, f *failure) {
	p.log.Debug("a connection of a sandbox was not made", "server", p.o.Server, "target", t.String(), "reason", f.text)
	p.o.Done(Connection{
		Host: t.host, Port: int(t.port), Allowed: !f.refused, Reason: f.text,
		Began: began, Took: time.Since(began),
	})
}

// reach judges a target and connects to it. A failure was reported already.
func (p *Proxy) reach(ctx context.Context, t target) (*link, *failure) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.o.ConnectTimeout)
	defer cancel()
	stop := context.AfterFunc(p.ctx, cancel)
	defer stop()
	f := p.named(t)
	var addrs []netip.Addr
	if f == nil {
		addrs, f = p.addresses(ctx, t)
	}
	var conn net.Conn
	var at netip.AddrPort
	if f == nil {
		conn, at, f = p.dial(ctx, t, addrs)
	}
	if f != nil {
		p.report(t, began, f)
		return nil, f
	}
	l := p.link(conn, Connection{Host: t.host, Port: int(t.port), Address: at.String(), Allowed: true, Began: began})
	if l == nil {
		return nil, &failure{"the sandbox is being closed", http.StatusServiceUnavailable, socksFailed, false}
	}
	return l, nil
}

// addresses looks a target up and leaves out what it must not be.
func (p *Proxy) addresses(ctx context.Context, t target) ([]netip.Addr, *failure) {
	if t.addr.IsValid() {
		return []netip.Addr{t.addr}, nil // the list has it
	}
	all, err := p.o.Resolve(ctx, t.host)
	if err != nil || len(all) == 0 {
		return nil, p.unresolved(t, err)
	}
	own, err := p.o.Own()
	if err != nil {
		p.log.Warn("the addresses of this machine can't be found out, so sandboxes reach nothing", "err", err)
		return nil, refused("the addresses of this machine can't be found out, and might be meant")
	}
	var good []netip.Addr
	var why *failure
	for _, a := range all {
		a = a.Unmap()
		switch {
		case p.o.Allow.AllowsAddress(a, t.port):
		case !publicnet.IsPublic(a):
			why = refused(fmt.Sprintf("%s is %s, which is not a public address; %s if it is meant", t.host, a, p.mend(a.WithZone("").String(), t.port)))
			continue
		case slices.Contains(own, publicnet.Unwrap(a)) || slices.Contains(own, a):
			why = refused(fmt.Sprintf("%s is %s, which is this machine; %s if it is meant", t.host, a, p.mend(a.String(), t.port)))
			continue
		}
		if good = append(good, a); len(good) == maxTried {
			break
		}
	}
	if len(good) == 0 {
		return nil, why
	}
	return good, nil
}

// dial connects to the first address that answers. Each has its share of the
// time that is left.
func (p *Proxy) dial(ctx context.Context, t target, addrs []netip.Addr) (net.Conn, netip.AddrPort, *failure) {
	var err error
	for i, a := range addrs {
		at := netip.AddrPortFrom(a, t.port)
		share, cancel := ctx, func() {}
		if end, ok := ctx.Deadline(); ok {
			share, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(addrs)-i))
		}
		var conn net.Conn
		conn, err = p.o.Dial(share, "tcp", at.String())
		cancel()
		if err == nil {
			return conn, at, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, netip.AddrPort{}, p.unreached(t, err)
}

// unresolved says why a name has no address, without naming the resolver: that is the
// host's business.
func (p *Proxy) unresolved(t target, err error) *failure {
	p.log.Debug("a name for a sandbox was not resolved", "name", t.host, "err", err)
	var dns *net.DNSError
	switch {
	case err == nil, errors.As(err, &dns) && dns.IsNotFound:
		return &failure{t.host + " can't be resolved: there is no such name", http.StatusBadGateway, socksNoHost, false}
	case late(err):
		return &failure{t.host + " can't be resolved: no answer in time", http.StatusGatewayTimeout, socksNoHost, false}
	}
	return &failure{t.host + " can't be resolved", http.StatusBadGateway, socksNoHost, false}
}

func (p *Proxy) unreached(t target, err error) *failure {
	p.log.Debug("a target of a sandbox was not reached", "target", t.String(), "err", err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &failure{t.String() + " refused the connection", http.StatusBadGateway, socksConnRefused, false}
	case errors.Is(err, syscall.ENETUNREACH):
		return &failure{t.String() + " is in a network that can't be reached", http.StatusBadGateway, socksNoNetwork, false}
	case errors.Is(err, syscall.EHOSTUNREACH):
		return &failure{t.String() + " can't be reached", http.StatusBadGateway, socksNoHost, false}
	case late(err):
		return &failure{t.String() + " did not answer in time", http.StatusGatewayTimeout, socksExpired, false}
	}
	return &failure{t.String() + " can't be connected to", http.StatusBadGateway, socksFailed, false}
}

func late(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
