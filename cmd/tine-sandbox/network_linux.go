//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// The links of a network namespace beside lo. gVisor takes over the inner one;
// the kernel keeps the outer one.
const (
	innerLink = "inner"
	outerLink = "outer"
)

var (
	innerMAC = net.HardwareAddr{0x02, 0x74, 0x69, 0x6e, 0x65, 0x02}
	outerMAC = net.HardwareAddr{0x02, 0x74, 0x69, 0x6e, 0x65, 0x01}
)

// networks are the network namespaces that wait for their sandbox, which keeps
// them from then on.
type networks struct {
	mu  sync.Mutex
	all map[string]*os.File
}

// make makes a network namespace in which lo is up, which gVisor looks at, and
// where it has addresses a link to a proxy's listener, which it returns. All of it
// lives as long as the sandbox, and leads to nothing else.
//
// The proxy's address is no address of the outer link: gVisor would take that over
// too. It is the kernel's by a route alone. So everything is there before the
// program runs, and nothing is left to do when it does.
func (n *networks) make(req *control.Network) (rep control.Reply, out []*os.File, err error) {
	if req == nil || req.Name == "" {
		return rep, nil, errors.New("no network is given")
	}
	var ns, listener *os.File
	err = elsewhere(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		if ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(lo); err != nil {
			return fmt.Errorf("raise lo: %w", err)
		}
		if req.Inner == "" {
			return nil
		}
		if err := addLinks(h, req); err != nil {
			return err
		}
		listener, err = listen(req)
		return err
	})
	if err != nil {
		if ns != nil {
			ns.Close()
		}
		return rep, nil, fmt.Errorf("make a network for the sandbox: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.all[req.Name]; old != nil {
		old.Close()
	}
	if n.all == nil {
		n.all = make(map[string]*os.File)
	}
	n.all[req.Name] = ns
	rep.Path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd())
	if listener != nil {
		out = append(out, listener)
	}
	return rep, out, nil
}

// drop lets go of a network, which goes where no sandbox has it. Twice is fine.
func (n *networks) drop(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ns := n.all[name]; ns != nil {
		ns.Close()
		delete(n.all, name)
	}
}

// elsewhere does something in another network namespace, which enter goes to.
func elsewhere(enter, do func() error) error {
	done := make(chan error, 1)
	go func() {
		// A thread that does not find back ends with this goroutine.
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			runtime.UnlockOSThread()
			return
		}
		defer home.Close()
		if err := enter(); err != nil {
			done <- fmt.Errorf("enter a network namespace: %w", err)
			runtime.UnlockOSThread()
			return
		}
		err = do()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// addLinks makes the pair of links. Each knows the other's address, so that neither
// has to ask for it.
func addLinks(h *netlink.Handle, req *control.Network) error {
	inner, err := netip.ParsePrefix(req.Inner)
	if err != nil {
		return err
	}
	outer, err := netip.ParsePrefix(req.Outer)
	if err != nil {
		return err
	}
	for _, s := range []struct{ path, value string }{
		{"/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"}, // no addresses but those it is given
		{"/proc/sys/net/ipv4/ip_forward", "0"},                // a new namespace begins with what the host has
	} {
		if err := setting(s.path, s.value); err != nil {
			return err
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = innerLink, innerMAC
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: outerLink, PeerHardwareAddr: outerMAC}); err != nil {
		return fmt.Errorf("make a link: %w; a kernel without veth can't give a sandbox a list of domains, only network none or host", err)
	}
	in, err := h.LinkByName(innerLink)
	if err != nil {
		return err
	}
	out, err := h.LinkByName(outerLink)
	if err != nil {
		return err
	}
	if err := h.AddrAdd(in, &netlink.Addr{IPNet: ipNet(inner)}); err != nil {
		return fmt.Errorf("give the link its address: %w", err)
	}
	for _, l := range []netlink.Link{out, in} {
		if err := h.LinkSetUp(l); err != nil {
			return fmt.Errorf("raise the link: %w", err)
		}
	}
	return errors.Join(
		h.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Dst: host(outer.Addr()), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_LOCAL}),
		h.RouteAdd(&netlink.Route{LinkIndex: out.Attrs().Index, Dst: host(inner.Addr()), Scope: netlink.SCOPE_LINK}),
		h.NeighSet(&netlink.Neigh{LinkIndex: in.Attrs().Index, State: netlink.NUD_PERMANENT, IP: outer.Addr().AsSlice(), HardwareAddr: outerMAC}),
		h.NeighSet(&netlink.Neigh{LinkIndex: out.Attrs().Index, State: netlink.NUD_PERMANENT, IP: inner.Addr().AsSlice(), HardwareAddr: innerMAC}),
	)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func host(a netip.Addr) *net.IPNet { return ipNet(netip.PrefixFrom(a, a.BitLen())) }

// setting sets one of the namespace that the thread is in, where it is not so.
func setting(path, value string) error {
	is, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && string(bytes.TrimSpace(is)) == value {
		return nil
	}
	if err == nil {
		err = os.WriteFile(path, []byte(value), 0)
	}
	if err != nil {
		return fmt.Errorf("set %s to %s: %w", path, value, err)
	}
	return nil
}

// backlog is how many connections may wait for the proxy.
const backlog = 128

// listen makes the proxy's listener in the namespace that the thread is in.
func listen(req *control.Network) (*os.File, error) {
	at, err := req.Listen()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "proxy")
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}),
		unix.Listen(fd, backlog),
	)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listen at %s: %w", at, err)
	}
	return f, nil
}
