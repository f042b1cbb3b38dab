package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// netWait is how long an attempt may wait for an answer that must not come.
const netWait = 2 * time.Second

func interfaces(arguments) (string, error) {
	all, err := net.Interfaces()
	var names []string
	for _, i := range all {
		addrs, _ := i.Addrs()
		names = append(names, fmt.Sprint(i.Name, addrs))
	}
	return strings.Join(names, " "), err
}

func connect(a arguments) (string, error) {
	c, err := net.DialTimeout(a["network"], a["address"], netWait)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(netWait))
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// send sends a datagram, and waits for nothing.
func send(a arguments) (string, error) {
	c, err := net.DialTimeout(a["network"], a["address"], netWait)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = c.Write([]byte("hello\n"))
	return "", err
}

// listen leaves something that answers every connection.
func listen(a arguments) (string, error) {
	l, err := net.Listen(a["network"], a["address"])
	if err != nil {
		return "", err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("here is the attacker\n"))
			c.Close()
		}
	}()
	return l.Addr().String(), nil
}

func lookup(a arguments) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), netWait)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, a["name"])
	return strings.Join(addrs, " "), err
}

func socket(a arguments) (string, error) {
	fd, err := unix.Socket(int(a.number("domain")), int(a.number("type")), int(a.number("protocol")))
	if err == nil {
		unix.Close(fd)
	}
	return "", err
}

// shm puts a text into System V memory of a key, or reads what is there.
func shm(a arguments) (string, error) {
	const key = 0x71e5eed
	flags := 0o666
	if a["text"] != "" {
		flags |= unix.IPC_CREAT
	}
	id, err := unix.SysvShmGet(key, 4096, flags)
	if err != nil {
		return "", err
	}
	b, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return "", err
	}
	copy(b, a["text"])
	text, _, _ := strings.Cut(string(b), "\x00")
	return text, nil // and it stays attached
}
