package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// driven is a program in Python that is asked one line at a time, and measures what it is asked
// for itself: its own pipes are not in the times.
type driven struct {
	p   *process
	out *bufio.Reader
}

// driven starts one, which ends with the run.
func (t *trials) driven(python, name string, text []byte, args ...string) (*driven, error) {
	path := filepath.Join(t.g.dir, name)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return nil, err
	}
	p, err := launch(t.g.launcher, t.g.dir, name, true, python, append([]string{path}, args...)...)
	if err != nil {
		return nil, err
	}
	t.g.procs = append(t.g.procs, p)
	return &driven{p, bufio.NewReader(p.stdout)}, nil
}

// drivenReply is what one answers.
type drivenReply struct {
	NS    []time.Duration `json:"ns"`
	PIDs  []int           `json:"pids"` // of all kernels
	Error string          `json:"error"`
}

func (s *driven) ask(ctx context.Context, request map[string]any) (r drivenReply, err error) {
	// A read that nothing answers ends with the process.
	defer context.AfterFunc(ctx, func() { _ = s.p.cmd.Process.Kill() })()
	line, err := json.Marshal(request)
	if err != nil {
		return r, err
	}
	if _, err = s.p.stdin.Write(append(line, '\n')); err == nil {
		line, err = s.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	if err != nil {
		return r, s.p.explain(err)
	}
	return r, nil
}
