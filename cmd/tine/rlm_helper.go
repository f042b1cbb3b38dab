package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config/srt"
	"github.com/tine-mcp/tine/internal/model/spec"
	"github.com/tine-mcp/tine/internal/native/rlm/body"
	"github.com/tine-mcp/tine/internal/store"
)

// The helper of tine rlm is a process beside it, which is made before the kernel starts.
// tine rlm then confines itself: it reads what code of a language model says. The helper
// is not confined, and does the little that tine rlm can't do any more: it starts
// tine-sandbox, connects to the hosts of language models and runs the program claude. When
// tine rlm is killed the helper sees the socket end, and ends the kernel in order.

// helperCommand is the hidden command that runs the helper, whose standard input is the
// socket.
const helperCommand = "rlm-helper"

// errNoHelper is the error of what needs a helper that has ended.
var errNoHelper = errors.New("the helper of tine rlm has ended; have the client start tine rlm again")

// helperTask is what the helper is told at its start.
type helperTask struct {
	State string   `json:"state"` // where rooms are
	Dir   string   `json:"dir"`   // the room
	Hosts []string `json:"hosts"` // host:port that may be connected
	CLI   string   `json:"cli"`   // the program claude; empty for none
	SRT   string   `json:"srt"`   // settings that say more of hosts; empty for none
	From  string   `json:"from"`  // where their paths begin
}

func newRLMHelperCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: helperCommand, Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var task helperTask
			if err := json.Unmarshal([]byte(args[0]), &task); err != nil {
				return usagef("this command is for tine rlm: %w", err)
			}
			return c.rlmHelper(cmd.Context(), task)
		},
	}
}

// rlmHelper runs until tine rlm has ended, and ends what that left.
func (c *cli) rlmHelper(ctx context.Context, task helperTask) error {
	// Signals of a terminal and of a client that ends its servers are for tine rlm.
	ctx = context.WithoutCancel(ctx)
	ignoreSignals()
	rooms := c.rlmRooms(task.State)
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		rooms.sweep(ctx)
	}()
	inOrder, err := helpOver(os.Stdin, task, rooms.programs())
	<-swept
	if err != nil || inOrder {
		return err
	}
	about, err := readRoom(task.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was removed
	}
	if err != nil {
		return err
	}
	m := &room{rooms: rooms, dir: task.Dir, about: about}
	m.ending() // a client that comes now waits, and finds the kernel
	for late := time.Now().Add(endingWait); ; time.Sleep(20 * time.Millisecond) {
		err := rooms.settle(ctx, task.Dir)
		if !errors.Is(err, store.ErrLocked) {
			return err
		}
		// One that is killed has its lock a moment longer than its socket.
		if about, err := readRoom(task.Dir); err != nil || about.Stage != roomEnding || time.Now().After(late) {
			return nil // another tine rlm has the kernel
		}
	}
}

// task is what the helper of a room may do, a helperTask as JSON.
func (m *room) task() (string, error) {
	t := helperTask{State: filepath.Dir(m.rooms.root), Dir: m.dir, SRT: m.about.Flags.SRT, From: m.about.Flags.Project}
	set, err := body.ReadSettings(m.cfg.Servers[0].Settings)
	if err != nil {
		return "", err
	}
	for _, name := range []string{set.Model, cmp.Or(set.SubModel, set.Model)} {
		at, err := spec.At(name, set.BaseURL)
		switch {
		case err != nil:
			return "", err
		case at == nil:
			t.CLI, _ = exec.LookPath("claude") // whose lack a call tells
			continue
		}
		t.Hosts = append(t.Hosts, hostPort(at))
		if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: at}); err == nil && proxy != nil {
			t.Hosts = append(t.Hosts, hostPort(proxy))
		}
	}
	text, err := json.Marshal(t)
	return string(text), err
}

// mayReach refuses a host and port that settings of sandbox-runtime do not allow.
func mayReach(set *srt.Settings, file, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	if !set.MayReach(host, uint16(n)) {
		return fmt.Errorf("network.allowedDomains of %s does not have %s, or network.deniedDomains does", file, address)
	}
	return nil
}

// hostPort is what a URL connects to.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	port := map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	return net.JoinHostPort(u.Hostname(), port)
}
