package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
)

// serveStdio answers each line by itself, so that slow calls overlap and answers
// come in another order than their requests.
func serveStdio(s *server, in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	var mu sync.Mutex
	var pending sync.WaitGroup
	defer pending.Wait()
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(line) == 1 {
			continue // the end of a line that another gateway left torn
		}
		pending.Go(func() {
			data, what := s.handle(line)
			switch what {
			case collapse:
				log.Print("falling over")
				os.Exit(3)
			case answer:
				mu.Lock()
				defer mu.Unlock()
				out.Write(append(data, '\n'))
			}
		})
	}
}

func serveHTTP(addr string, s *server) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost && s.mode != "hang" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		data, what := s.handle(body)
		switch {
		case what == collapse:
			panic(http.ErrAbortHandler)
		case what == silence && s.mode == "hang", what == silence && s.mode == "hangcall" && !isNotification(body):
			<-r.Context().Done()
		case what == silence:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Write(data)
		}
	}))
}

func isNotification(body []byte) bool {
	var r request
	return json.Unmarshal(body, &r) == nil && r.ID == nil
}
