package toolserver

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
)

const sessionHeader = "Mcp-Session-Id"

// serveHTTP answers without streams.
func (s *Server[A]) serveHTTP(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	var known sessions
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, maxMessage))
		if err != nil {
			return
		}
		var q request[A]
		if err := json.Unmarshal(body, &q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if s.Sessions && !known.admit(w, r, q.Method) {
			return
		}
		if q.ID == nil {
			s.hear(q.Method)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.respond(&q))
	}))
}

// sessions are those of who has said hello. They are in memory alone.
type sessions struct {
	mu  sync.Mutex
	all map[string]bool
}

// admit begins a session, or refuses a request that is in none.
func (s *sessions) admit(w http.ResponseWriter, r *http.Request, method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == "initialize" {
		if s.all == nil {
			s.all = make(map[string]bool)
		}
		id := rand.Text()
		s.all[id] = true
		w.Header().Set(sessionHeader, id)
		return true
	}
	id := r.Header.Get(sessionHeader)
	switch {
	case id == "":
		http.Error(w, "no session is named", http.StatusBadRequest)
	case !s.all[id]:
		http.Error(w, "no such session", http.StatusNotFound)
	}
	return s.all[id]
}
