package teller

import (
	"io"
	"net/http"
)

// ServeHTTP answers posts. The query of the URL is told as the header Query.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h := r.Header.Clone()
	h.Set("Query", r.URL.RawQuery)
	answer, status := s.Answer(r.Context(), body, h)
	if answer != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}
