//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
)

// lure is something on the host that no program inside may reach.
type lure struct {
	net.Listener
	hits atomic.Int64
}

func newLure(t *testing.T, network, address string) *lure {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	u := &lure{Listener: l}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			u.hits.Add(1)
			_, _ = c.Write([]byte("the host is here\n"))
			c.Close()
		}
	}()
	return u
}

func (u *lure) port() string {
	_, port, _ := net.SplitHostPort(u.Addr().String())
	return port
}

// hostAddress is an address of this machine that other machines can reach, or else an
// unused one.
func hostAddress() string {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "192.0.2.1"
}

// TestIsolationNetwork has no network, and tries to reach one.
func TestIsolationNetwork(t *testing.T) {
	p := newPrison(t, Options{})
	tcp := newLure(t, "tcp", "0.0.0.0:0")
	abstract := newLure(t, "unix", "@"+p.canary)
	file := newLure(t, "unix", p.at("open/socket"))
	written := newLure(t, "unix", p.at("write/socket"))
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, path := range []string{p.at("open/socket"), p.at("write/socket")} {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{p.at("open/fifo"), p.at("write/fifo")} {
		if err := unix.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		// It is held open, so that opening it would not wait.
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(p.canary); err != nil {
			t.Fatal(err)
		}
	}
	c := p.enter(t, func(s *driver.Spec) { options(*s).AllowWrite = []string{p.at("write")} })
	t.Run("lo alone", func(t *testing.T) {
		got := c.gets(t, "interfaces")
		if !strings.HasPrefix(got, "lo[127.0.0.1/8") || len(strings.Split(got, "] ")) != 1 {
			t.Errorf("it has %s", got)
		}
	})
	refused, unreachable := "ECONNREFUSED", "ENETUNREACH EHOSTUNREACH ECONNREFUSED ENETDOWN"
	c.all(t, []attempt{
		{"loopback of the host", refused, "connect", []string{"network", "tcp", "address", "127.0.0.1:" + tcp.port()}},
		{"loopback by another address", refused, "connect", []string{"network", "tcp", "address", "127.8.8.8:" + tcp.port()}},
		{"the host by no address", unreachable, "connect", []string{"network", "tcp", "address", "0.0.0.0:" + tcp.port()}},
		{"the host by its address", unreachable, "connect", []string{"network", "tcp", "address", hostAddress() + ":" + tcp.port()}},
		{"loopback of version 6", "ECONNREFUSED EADDRNOTAVAIL ENETUNREACH EAFNOSUPPORT", "connect", []string{"network", "tcp6", "address", "[::1]:" + tcp.port()}},
		{"a mapped address", "ECONNREFUSED EADDRNOTAVAIL ENETUNREACH EAFNOSUPPORT", "connect", []string{"network", "tcp", "address", "[::ffff:127.0.0.1]:" + tcp.port()}},
		{"the address of clouds' metadata", unreachable, "connect", []string{"network", "tcp", "address", "169.254.169.254:80"}},
		{"a host far away", unreachable, "connect", []string{"network", "tcp", "address", "192.0.2.7:443"}},
		{"a datagram far away", unreachable, "send", []string{"network", "udp", "address", "192.0.2.7:53"}},
		{"a broadcast", "ENETUNREACH EHOSTUNREACH EACCES EPERM", "send", []string{"network", "udp", "address", "255.255.255.255:53"}},
		{"a name", "error ECONNREFUSED ENETUNREACH ETIMEDOUT", "lookup", []string{"name", "example.org"}},
		{"an abstract socket of the host", refused, "connect", []string{"network", "unix", "address", "@" + p.canary}},
		{"a socket in a folder that it sees", "ECONNREFUSED EPERM EACCES ENOENT ENXIO", "connect", []string{"network", "unix", "address", p.at("open/socket")}},
		{"a socket in a folder that it may write to", "ECONNREFUSED EPERM EACCES ENOENT ENXIO", "connect", []string{"network", "unix", "address", p.at("write/socket")}},
		{"to read a FIFO", "ENXIO EPERM EACCES ENOENT EOPNOTSUPP ENOTSUP EAGAIN", "read", []string{"path", p.at("open/fifo")}},
		{"to read a FIFO that it may write to", "ENXIO EPERM EACCES ENOENT EOPNOTSUPP ENOTSUP EAGAIN", "read", []string{"path", p.at("write/fifo")}},
		{"to write to a FIFO", "ENXIO EPERM EACCES ENOENT EOPNOTSUPP ENOTSUP", "write", []string{"path", p.at("write/fifo"), "text", "mine"}},
		{"a raw socket", "EPERM EACCES EPROTONOSUPPORT ESOCKTNOSUPPORT", "socket", []string{"domain", fmt.Sprint(unix.AF_INET), "type", fmt.Sprint(unix.SOCK_RAW), "protocol", fmt.Sprint(unix.IPPROTO_ICMP)}},
		{"a packet socket", "EPERM EACCES EAFNOSUPPORT ESOCKTNOSUPPORT", "socket", []string{"domain", fmt.Sprint(unix.AF_PACKET), "type", fmt.Sprint(unix.SOCK_RAW), "protocol", "768"}},
		{"a socket to the machine around", "EAFNOSUPPORT", "socket", []string{"domain", fmt.Sprint(unix.AF_VSOCK), "type", fmt.Sprint(unix.SOCK_STREAM)}},
		{"a socket of the kernel's ciphers", "EAFNOSUPPORT", "socket", []string{"domain", fmt.Sprint(unix.AF_ALG), "type", fmt.Sprint(unix.SOCK_SEQPACKET)}},
		{"a socket of the kernel's filters", "EAFNOSUPPORT EPROTONOSUPPORT EPERM EACCES", "socket", []string{"domain", fmt.Sprint(unix.AF_NETLINK), "type", fmt.Sprint(unix.SOCK_RAW), "protocol", fmt.Sprint(unix.NETLINK_AUDIT)}},
	})
	for name, u := range map[string]*lure{"tcp": tcp, "abstract": abstract, "a socket": file, "a socket that may be written to": written} {
		if n := u.hits.Load(); n != 0 {
			t.Errorf("%s of the host was reached %d times", name, n)
		}
	}
	t.Run("its own socket is not the host's", func(t *testing.T) {
		c.try(t, "listen", "network", "unix", "address", p.at("write/own"))
		if conn, err := net.Dial("unix", p.at("write/own")); err == nil {
			conn.Close()
			t.Error("the host reached it")
		}
	})
	t.Run("a datagram to loopback", func(t *testing.T) {
		c.try(t, "send", "network", "udp", "address", udp.LocalAddr().String())
		c.works(t)
		_ = udp.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, _, err := udp.ReadFrom(make([]byte, 10)); err == nil {
			t.Errorf("the host got %d bytes", n)
		}
	})
	t.Run("what the kernel says about the host's", func(t *testing.T) {
		for _, name := range []string{"tcp", "udp", "unix", "arp", "route", "dev", "if_inet6"} {
			got := c.try(t, "read", "path", "/proc/net/"+name)
			if strings.Contains(got.text, p.canary) || strings.Contains(got.text, fmt.Sprintf(":%04X ", tcp.Addr().(*net.TCPAddr).Port)) || strings.Contains(got.text, "eth") {
				t.Errorf("/proc/net/%s has %s", name, got.text)
			}
		}
	})
	t.Run("a listener inside is not reached from outside", func(t *testing.T) {
		at := c.gets(t, "listen", "network", "tcp", "address", "0.0.0.0:0")
		_, port, _ := net.SplitHostPort(at)
		if got := c.gets(t, "connect", "network", "tcp", "address", "127.0.0.1:"+port); !strings.Contains(got, "attacker") {
			t.Errorf("inside it answers %q", got)
		}
		if conn, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second); err == nil {
			b := make([]byte, 100)
			n, _ := conn.Read(b)
			conn.Close()
			if strings.Contains(string(b[:n]), "attacker") {
				t.Error("the host reached it")
			}
		}
		name := "@" + p.canary + "-inside"
		c.gets(t, "listen", "network", "unix", "address", name)
		if conn, err := net.Dial("unix", name); err == nil {
			conn.Close()
			t.Error("the host reached its abstract socket")
		}
	})
}

// TestIsolationProxy has a list of domains, and tries to reach more by the link to
// the proxy.
func TestIsolationProxy(t *testing.T) {
	p := newPrison(t, Options{})
	tcp := newLure(t, "tcp", "0.0.0.0:0")
	c := p.enter(t, func(s *driver.Spec) { options(*s).Network, options(*s).Domains = "", []string{"example.org"} })
	outer, _, _ := net.SplitHostPort(proxyAddress)
	unreachable := "ECONNREFUSED ENETUNREACH EHOSTUNREACH ETIMEDOUT"
	c.all(t, []attempt{
		{"the host where the proxy is", unreachable, "connect", []string{"network", "tcp", "address", outer + ":" + tcp.port()}},
		{"the host by its address", unreachable, "connect", []string{"network", "tcp", "address", hostAddress() + ":" + tcp.port()}},
		{"loopback of the host", "ECONNREFUSED", "connect", []string{"network", "tcp", "address", "127.0.0.1:" + tcp.port()}},
		{"clouds' metadata", unreachable, "connect", []string{"network", "tcp", "address", "169.254.169.254:80"}},
		{"another of its link", unreachable, "connect", []string{"network", "tcp", "address", "10.111.0.3:80"}},
		{"a raw socket", "EPERM EACCES EPROTONOSUPPORT ESOCKTNOSUPPORT", "socket", []string{"domain", fmt.Sprint(unix.AF_INET), "type", fmt.Sprint(unix.SOCK_RAW), "protocol", fmt.Sprint(unix.IPPROTO_RAW)}},
	})
	if n := tcp.hits.Load(); n != 0 {
		t.Errorf("the host was reached %d times", n)
	}
}
