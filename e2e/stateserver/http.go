package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
)

// serveHTTP answers each request of the state's tools over streamable HTTP,
// without sessions and without streams.
func serveHTTP(addr string, s *state) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
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
		if q.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.respond(&q))
	}))
}
