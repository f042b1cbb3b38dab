package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"sync"
)

// serve answers the same messages over HTTP, one a request.
func serve(addr string) {
	var mu sync.Mutex // what is remembered is written by one at a time
	err := http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var b bytes.Buffer
		out := bufio.NewWriter(&b)
		mu.Lock()
		answer(bytes.TrimSpace(body), out)
		mu.Unlock()
		out.Flush()
		if b.Len() == 0 {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(b.Bytes())
	}))
	os.Stderr.WriteString(err.Error() + "\n")
	os.Exit(1)
}
