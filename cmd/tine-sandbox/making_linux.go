//go:build linux && (amd64 || arm64)

package main

import "sync"

// making are the sandboxes that are being made. The caller may have given up, or be
// gone, before its sandbox exists: destroying one waits until it exists, and one that
// can't be reported to its caller is destroyed.
type making struct {
	mu  sync.Mutex
	all map[string]chan struct{} // closed when one is there, or failed
}

// begin notes one before anything else that was asked for can be done.
func (m *making) begin(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = make(map[string]chan struct{})
	}
	m.all[name] = make(chan struct{})
}

func (m *making) end(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.all[name]; c != nil {
		close(c)
		delete(m.all, name)
	}
}

// wait returns when the sandbox is not being made any more.
func (m *making) wait(name string) {
	m.mu.Lock()
	c := m.all[name]
	m.mu.Unlock()
	if c != nil {
		<-c
	}
}
