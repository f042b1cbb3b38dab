package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// crew are those who work for the server: a program at the other end of two pipes,
// a program that sleeps, and threads of its own. Each counts what it did.
type crew struct {
	mu      sync.Mutex
	in      io.Writer
	out     *bufio.Reader
	sleeper *exec.Cmd
	threads []chan chan int
}

func startCrew() (*crew, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-child")
	cmd.Stderr = os.Stderr
	c := &crew{sleeper: exec.Command("/bin/sleep", "1000000")}
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := errors.Join(cmd.Start(), c.sleeper.Start()); err != nil {
		return nil, err
	}
	for range 4 {
		ask := make(chan chan int)
		c.threads = append(c.threads, ask)
		go func() {
			runtime.LockOSThread()
			n := 0
			for answer := range ask {
				n++
				answer <- n
			}
		}()
	}
	return c, nil
}

// do has each worker work once, and tells how often each did.
func (c *crew) do(what string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		return "", fmt.Errorf("the program that works: %w", err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the program that works: %w", err)
	}
	if err := c.sleeper.Process.Signal(syscall.Signal(0)); err != nil {
		return "", fmt.Errorf("the program that sleeps: %w", err)
	}
	all := []string{strings.TrimSpace(line)}
	for _, ask := range c.threads {
		answer := make(chan int)
		ask <- answer
		all = append(all, fmt.Sprint(<-answer))
	}
	return strings.Join(all, " "), nil
}

// work answers each line with how many there were, until there are no more.
func work() {
	n := 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n++
		fmt.Println(in.Text(), n)
	}
}
