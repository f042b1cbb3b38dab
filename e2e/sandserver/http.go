package main

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
)

const sessionHeader = "Mcp-Session-Id"

// serveHTTP answers over streamable HTTP, without streams. Who has not said hello
// is refused, and the sessions are in memory.
func serveHTTP(addr string, m *memory) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	sessions := map[string]bool{}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, maxMessage))
		if err != nil {
			return
		}
		var q request
		if err := json.Unmarshal(body, &q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		if q.Method == "initialize" {
			id := rand.Text()
			sessions[id] = true
			w.Header().Set(sessionHeader, id)
		} else if id := r.Header.Get(sessionHeader); id == "" || !sessions[id] {
			mu.Unlock()
			status := http.StatusNotFound
			if id == "" {
				status = http.StatusBadRequest
			}
			http.Error(w, "no such session", status)
			return
		}
		mu.Unlock()
		if q.ID == nil {
			m.hear(q.Method)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(m.respond(&q))
	}))
}
