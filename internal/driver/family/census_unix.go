//go:build linux || darwin

package family

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/procid"
)

// A Family is how the processes that one start has led to are known.
type Family struct {
	Token string
	Dir   string // see RealPath; empty for none
}

// A Member is a process that belongs to families.
type Member struct {
	procid.ID
	Tokens []string
	Dirs   []string
}

// Of reports whether the process is of a family.
func (p Member) Of(f Family) bool {
	return f.Token != "" && slices.Contains(p.Tokens, f.Token) || slices.Contains(p.Dirs, f.Dir)
}

// markerIn finds the tokens in an environment, whose variables end with zero
// bytes.
func markerIn(env []byte) []string {
	for len(env) > 0 {
		var kv []byte
		kv, env, _ = bytes.Cut(env, []byte{0})
		if value, ok := bytes.CutPrefix(kv, []byte(Variable+"=")); ok {
			return strings.Split(string(value), Separator)
		}
	}
	return nil
}

// A Census counts the processes of all families. The zero value is ready. One count
// serves every caller that asked before it began: a thousand instances that end together
// are not a thousand times the machine's processes.
type Census struct {
	mu   sync.Mutex
	next *count // asked for and not begun
	turn sync.Mutex
}

type count struct {
	done    chan struct{}
	members []Member
}

// take returns the members of every family, counted after the call began.
func (c *Census) take() []Member {
	c.mu.Lock()
	n := c.next
	if n != nil {
		c.mu.Unlock()
		<-n.done
		return n.members
	}
	n = &count{done: make(chan struct{})}
	c.next = n
	c.mu.Unlock()

	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	c.next = nil
	c.mu.Unlock()
	scan(func(p Member) { n.members = append(n.members, p) })
	close(n.done)
	return n.members
}

// Members returns the processes of the families.
func (c *Census) Members(families ...Family) []Member {
	return slices.DeleteFunc(slices.Clone(c.take()), func(p Member) bool { return !slices.ContainsFunc(families, p.Of) })
}

// End kills the members of the families, again until there are none: a process
// may start others between being seen and being killed.
func (c *Census) End(families ...Family) error {
	giveUp := time.Now().Add(KillWait / 2)
	pause := time.Millisecond
	killed := make(map[int]procid.ID)
	for {
		seen := false
		for _, p := range c.Members(families...) {
			seen = true
			p.Signal(syscall.SIGKILL)
			killed[p.PID] = p.ID
		}
		// A dying process has neither environment nor files any more, and still runs.
		for pid, id := range killed {
			if !id.Lives() {
				// Where the gateway is the init of a container orphans become
				// its children, and stay until it has waited for them.
				syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
				delete(killed, pid)
			}
		}
		if !seen && len(killed) == 0 {
			return nil
		}
		if time.Now().After(giveUp) {
			return fmt.Errorf("processes %v were killed and do not end", slices.Sorted(maps.Keys(killed)))
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}
