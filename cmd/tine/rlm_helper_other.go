//go:build !linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"

	"github.com/tine-mcp/tine/internal/driver/sandbox"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/spec"
)

// Here nothing confines tine rlm. The helper only ends what a killed one leaves.

func ignoreSignals() { signal.Ignore(os.Interrupt) }

const helpBye = "bye"

// helpOver waits for the end of tine rlm, and reports whether it ended in order.
func helpOver(pipe *os.File, task helperTask, _ string) (inOrder bool, err error) {
	said, _ := io.ReadAll(io.LimitReader(pipe, int64(len(helpBye)))) // an error is an end, too
	if string(said) != helpBye {
		return false, nil
	}
	return true, removeBrief(task.Dir)
}

// rlmHelper is the side of tine rlm; nil for a gateway without one.
type rlmHelper struct {
	room *room
	mu   sync.Mutex
	pipe *os.File
}

func newRLMHelper(m *room) *rlmHelper { return &rlmHelper{room: m} }

// gone is never closed: all works without the helper.
// confine starts the helper, once.
func (h *rlmHelper) confine() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pipe != nil {
		return nil
	}
	task, err := h.room.task()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command(program, helperCommand, task)
	cmd.Stdin, cmd.Stderr = r, os.Stderr
	if err := cmd.Start(); err != nil {
		w.Close()
		return fmt.Errorf("start the helper of tine rlm: %w", err)
	}
	h.pipe = w
	go func() { _ = cmd.Wait() }()
	return nil
}

func (h *rlmHelper) starter() func(sandbox.Command) (sandbox.Running, error) { return nil }

func (h *rlmHelper) blind() func() bool { return nil }

func (h *rlmHelper) memory() func(pid, gofer int) (int64, error) { return nil }

func (h *rlmHelper) openModel(name string, o model.Options) (model.Model, error) {
	if h != nil && h.room.srt != nil {
		at, err := spec.At(name, o.BaseURL)
		if err == nil && at != nil {
			err = mayReach(h.room.srt, h.room.about.Flags.SRT, hostPort(at))
		}
		if err != nil {
			return nil, err
		}
	}
	return model.Open(name, o)
}

// bye ends the helper in order, which removes a room that is not kept. It reports
// whether there is a helper.
func (h *rlmHelper) bye() (bool, error) {
	if h == nil {
		return false, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pipe == nil {
		return false, nil
	}
	_, err := io.WriteString(h.pipe, helpBye)
	return true, errors.Join(err, h.pipe.Close())
}
