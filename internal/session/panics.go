package session

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// panics brings a panic of one of several goroutines to the one that waits for
// them, whose caller may contain it: what is done for the members of a session
// reads states that came from outside.
type panics struct {
	once  sync.Once
	first error
}

// catch is deferred by each of the goroutines.
func (p *panics) catch() {
	if v := recover(); v != nil {
		p.once.Do(func() { p.first = fmt.Errorf("%v\n\n%s", v, debug.Stack()) })
	}
}

// raise panics with what was caught, once all have ended.
func (p *panics) raise() {
	if p.first != nil {
		panic(p.first)
	}
}
