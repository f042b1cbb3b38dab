package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// state is what the server remembers: a log of changes, each on a line of its
// own, written before it is answered.
type state struct {
	mu     sync.Mutex
	log    *os.File
	values map[string]string
}

type change struct {
	Key   string  `json:"key"`
	Value *string `json:"value"` // nil where the key goes
}

func openState(dir string) (*state, error) {
	if dir == "" {
		return nil, errors.New("-dir is missing")
	}
	f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	s := &state{log: f, values: map[string]string{}}
	end := bytes.LastIndexByte(data, '\n') + 1 // half a line is of a write that was never answered
	for line := range bytes.Lines(data[:end]) {
		var c change
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, fmt.Errorf("%s: %w in %q", f.Name(), err, line)
		}
		s.apply(c)
	}
	if err := f.Truncate(int64(end)); err != nil {
		return nil, err
	}
	_, err = f.Seek(int64(end), io.SeekStart)
	return s, err
}

func (s *state) apply(c change) {
	if c.Value == nil {
		delete(s.values, c.Key)
	} else {
		s.values[c.Key] = *c.Value
	}
}

func (s *state) commit(c change) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.log.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := s.log.Write(append(line, '\n')); err != nil {
		_, serr := s.log.Seek(at, io.SeekStart)
		return errors.Join(err, s.log.Truncate(at), serr)
	}
	s.apply(c)
	return nil
}

func (s *state) call(tool string, a arguments) (string, error) {
	switch tool {
	case "put": // after some time, if wanted
		time.Sleep(time.Duration(a.MS) * time.Millisecond)
		return a.Value, s.commit(change{a.Key, &a.Value})
	case "del":
		return a.Key, s.commit(change{a.Key, nil})
	case "all":
		s.mu.Lock()
		defer s.mu.Unlock()
		all, err := json.Marshal(s.values)
		return string(all), err
	case "pid":
		return strconv.Itoa(os.Getpid()), nil
	case "ask":
		return ask(a)
	}
	return "", errors.New("no such tool: " + tool)
}

// ask makes an HTTP request and returns its status and body.
func ask(a arguments) (string, error) {
	req, err := http.NewRequest(a.Method, a.URL, strings.NewReader(a.Body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+a.Token)
	if a.Says {
		req.Header.Set("Tine-Call", a.call)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body), err
}
