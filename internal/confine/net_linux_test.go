package confine

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func known(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func socket(family int) error { return socketOf(family, unix.SOCK_STREAM) }

func socketOf(family, kind int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func pair(family, kind int) error {
	fds, err := unix.Socketpair(family, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
	}
	return err
}

// received takes a connection from the socket that a child got as its first file.
func received() int {
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(3, buf, oob, unix.MSG_CMSG_CLOEXEC)
	messages := must(unix.ParseSocketControlMessage(oob[:must(n, err)]))
	return must(unix.ParseUnixRights(&messages[0]))[0]
}

// echo writes a word to a connection and reads it back.
func echo(conn net.Conn) error {
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(conn, buf); err != nil {
		return err
	}
	if string(buf) != "hello" {
		return fmt.Errorf("got %q", buf)
	}
	return nil
}

// inside tries Unix sockets that this process makes itself.
func inside(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	return echo(conn)
}

// network is what children try, confined by rules.
func network(c *child, rules Rules) {
	address := os.Getenv("ADDRESS")
	c.apply(rules)
	_, err := net.Dial("tcp", address)
	c.try("dial", err)
	_, err = net.Listen("tcp", "127.0.0.1:0")
	c.try("listen", err)
	_, err = net.ListenPacket("udp", "127.0.0.1:0")
	c.try("udp", err)
	c.try("inet6", socket(unix.AF_INET6))
	c.try("raw", socketOf(unix.AF_INET, unix.SOCK_RAW))
	c.try("netlink", socketOf(unix.AF_NETLINK, unix.SOCK_RAW))
	c.try("packet", socketOf(unix.AF_PACKET, unix.SOCK_RAW))
	c.try("vsock", socket(unix.AF_VSOCK))
	c.try("alg", socketOf(unix.AF_ALG, unix.SOCK_SEQPACKET))
	_, _, errno := unix.Syscall(unix.SYS_SOCKET, 1<<32|unix.AF_INET, unix.SOCK_STREAM, 0)
	c.try("inet with more bits", known(errno))
	c.try("pair", pair(unix.AF_UNIX, unix.SOCK_STREAM))
	c.try("pair of packets", pair(unix.AF_UNIX, unix.SOCK_SEQPACKET))
	c.try("pair of datagrams", pair(unix.AF_UNIX, unix.SOCK_DGRAM))
	c.try("pair of another family", pair(unix.AF_TIPC, unix.SOCK_STREAM))
	c.try("unix", socket(unix.AF_UNIX))
	c.try("unix in a folder", inside(c.dir+"/w/s"))
	_, err = net.Dial("unix", os.Getenv("OUTSIDE"))
	c.try("unix outside", err)

	// What is received is used, and leads nowhere else.
	fd := received()
	file := os.NewFile(uintptr(fd), "received")
	conn := must(net.FileConn(file))
	c.try("use", echo(conn))
	conn.Close()
	anyone := &unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno = unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(anyone)), unix.SizeofSockaddrInet4)
	c.try("disconnect", known(errno))
	c.try("connect elsewhere", unix.Connect(fd, inet(address)))
	c.try("connect by sending", unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, inet(address)))
	_, err = unix.SendmsgN(fd, []byte("x"), nil, inet(address), unix.MSG_FASTOPEN)
	c.try("connect by a message", err)
	c.try("bind", unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	runtime.KeepAlive(file)
}

func inet(address string) *unix.SockaddrInet4 {
	a := must(net.ResolveTCPAddr("tcp4", address))
	return &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
}

func init() {
	children["net"] = func(c *child) { network(c, c.rules()) }
	children["sockets"] = func(c *child) {
		rules := c.rules()
		rules.Sockets = []string{os.Getenv("OUTSIDE"), c.dir + "/no"}
		c.apply(rules)
		_, err := net.Dial("unix", os.Getenv("OUTSIDE"))
		c.try("unix outside", err)
		c.try("read outside", list(c.dir+"/out"))
	}
	children["pairs"] = func(c *child) {
		rules := c.rules()
		rules.PairsOnly = true
		network(c, rules)
	}
}

// connected runs a child that gets a TCP connection over a Unix socket, once it is
// confined or before: it waits in the socket.
func connected(t *testing.T, part string) outcome {
	t.Helper()
	dir := tree(t)
	cmd := command(t, part, dir)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	outside, err := net.Listen("unix", dir+"/out/s")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	conn, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	defer theirs.Close()
	defer unix.Close(fds[0])
	if err := unix.Sendmsg(fds[0], []byte("x"), unix.UnixRights(int(file.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Env = append(cmd.Env, "ADDRESS="+l.Addr().String(), "OUTSIDE="+dir+"/out/s")
	return run(t, cmd)
}

func TestNetwork(t *testing.T) { each(t, testNetwork) }

func testNetwork(t *testing.T) {
	out := connected(t, "net")
	connect, bind := syscall.EACCES, syscall.EACCES
	if out.Report.ABI < abiNet {
		connect, bind = syscall.EINPROGRESS, syscall.EINVAL // which is said to be missing
	}
	out.want(t, map[string]syscall.Errno{
		"dial": syscall.EACCES, "listen": syscall.EACCES, "udp": syscall.EACCES, "inet6": syscall.EACCES, "raw": syscall.EACCES,
		"netlink": syscall.EACCES, "packet": syscall.EACCES, "vsock": syscall.EACCES, "alg": syscall.EACCES, "inet with more bits": syscall.EACCES,
		"pair": 0, "pair of packets": 0, "pair of datagrams": 0, "pair of another family": syscall.EACCES,
		"unix": 0, "unix in a folder": 0, "unix outside": since(out, abiUnix, syscall.EACCES),
		"use": 0, "disconnect": 0, "connect elsewhere": connect,
		"connect by sending": syscall.EPERM, "connect by a message": syscall.EPERM, "bind": bind,
	})
}

func TestSockets(t *testing.T) {
	out := connected(t, "sockets")
	out.want(t, map[string]syscall.Errno{"unix outside": 0, "read outside": syscall.EACCES})
	if n := len(out.Report.Skipped); n != 3 {
		t.Errorf("skipped %q", out.Report.Skipped)
	}
}

func TestPairsOnly(t *testing.T) {
	connected(t, "pairs").want(t, map[string]syscall.Errno{
		"dial": syscall.EACCES, "listen": syscall.EACCES, "udp": syscall.EACCES, "inet6": syscall.EACCES, "raw": syscall.EACCES,
		"netlink": syscall.EACCES, "packet": syscall.EACCES, "vsock": syscall.EACCES, "alg": syscall.EACCES, "inet with more bits": syscall.EACCES,
		"pair": 0, "pair of packets": 0, "pair of datagrams": syscall.EACCES, "pair of another family": syscall.EACCES,
		"unix": syscall.EACCES, "unix in a folder": syscall.EACCES, "unix outside": syscall.EACCES,
		"use": 0, "disconnect": syscall.EACCES, "connect elsewhere": syscall.EACCES,
		"connect by sending": syscall.EPERM, "connect by a message": syscall.EPERM, "bind": syscall.EACCES,
	})
}
