package main

import (
	crand "crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"
)

// memory is all that the server knows.
type memory struct {
	mu     sync.Mutex
	values map[string]string
	life   life
	random *rand.Rand
	slow   time.Duration
	crew   *crew // nil without workers
}

// life tells one start of the program from another.
type life struct {
	ID         string `json:"id"` // made up at the start
	PID        int    `json:"pid"`
	Handshakes int    `json:"handshakes"`
	Forked     int    `json:"forked"` // how often it was told that it is a copy
	Ticks      int    `json:"ticks"`  // of a timer that never stops
}

func newMemory() *memory {
	m := &memory{values: map[string]string{}, life: life{ID: crand.Text(), PID: os.Getpid()}}
	m.reseed()
	go func() {
		for range time.Tick(20 * time.Millisecond) {
			m.mu.Lock()
			m.life.Ticks++
			m.mu.Unlock()
		}
	}()
	return m
}

// reseed makes what is drawn from now on different from what any copy draws.
func (m *memory) reseed() {
	var seed [16]byte
	crand.Read(seed[:])
	m.random = rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])))
}

// hear is told of each request and notification.
func (m *memory) hear(method string) {
	if method == "initialize" || method == "tools/list" {
		time.Sleep(m.slow)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch method {
	case "initialize":
		m.life.Handshakes++
	case "notifications/tine/forked":
		m.life.Forked++
		m.reseed()
	}
}

func (m *memory) call(tool string, a arguments) (string, error) {
	if tool == "put" { // after some time, if wanted
		time.Sleep(time.Duration(a.MS) * time.Millisecond)
	}
	if tool == "work" {
		if m.crew == nil {
			return "", errors.New("nobody works here")
		}
		return m.crew.do(a.Value)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch tool {
	case "put":
		m.values[a.Key] = a.Value
		return a.Value, nil
	case "del":
		delete(m.values, a.Key)
		return a.Key, nil
	case "all":
		return text(m.values)
	case "life":
		return text(m.life)
	case "read": // a file
		b, err := os.ReadFile(a.Key)
		return string(b), err
	case "draw":
		return strconv.FormatUint(m.random.Uint64(), 16), nil
	case "reseed":
		m.reseed()
		return "", nil
	case "alarm": // a value that is put later
		time.AfterFunc(time.Duration(a.MS)*time.Millisecond, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.values[a.Key] = a.Value
		})
		return a.Key, nil
	}
	return "", errors.New("no such tool: " + tool)
}

func text(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
