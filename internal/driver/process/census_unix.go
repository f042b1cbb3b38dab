//go:build linux || darwin

package process

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

// family is how the processes of one instance are known, wherever they have
// gone: by the token in their environment, or by what they have open of the
// instance's folder.
type family struct {
	token string
	dir   string // as the kernel tells it
}

// member is a process that belongs to instances.
type member struct {
	procid.ID
	tokens []string
	dirs   []string
}

func (p member) of(f family) bool {
	return f.token != "" && slices.Contains(p.tokens, f.token) || slices.Contains(p.dirs, f.dir)
}

// markerIn finds the tokens in an environment, whose variables end with zero
// bytes.
func markerIn(env []byte) []string {
	for len(env) > 0 {
		var kv []byte
		kv, env, _ = bytes.Cut(env, []byte{0})
		if value, ok := bytes.CutPrefix(kv, []byte(markerVar+"=")); ok {
			return strings.Split(string(value), markerSeparator)
		}
	}
	return nil
}

// census counts the processes of all instances. One count serves every caller that asked
// before it began: a thousand instances that end together are not a thousand times the
// machine's processes.
type census struct {
	mu   sync.Mutex
	next *count // asked for and not begun
	turn sync.Mutex
}

type count struct {
	done    chan struct{}
	members []member
}

// take returns the members of every instance, counted after the call began.
func (c *census) take() []member {
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
	scan(func(p member) { n.members = append(n.members, p) })
	close(n.done)
	return n.members
}

// members returns the processes of the families.
func (c *census) members(families ...family) []member {
	return slices.DeleteFunc(slices.Clone(c.take()), func(p member) bool { return !slices.ContainsFunc(families, p.of) })
}

// end kills the members of the families, again until there are none: a process
// may start others between being seen and being killed.
func (c *census) end(families ...family) error {
	giveUp := time.Now().Add(killWait / 2)
	pause := time.Millisecond
	killed := make(map[int]procid.ID)
	for {
		seen := false
		for _, p := range c.members(families...) {
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
