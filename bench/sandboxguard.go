package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

// guardRole is the role that ends what goes on by itself after its gateway was
// killed with the harness: servers, in sandboxes and not.
const guardRole = "guard"

// guard starts it, once.
func (g *rig) guard(ctx context.Context) error {
	if g.guarded {
		return nil
	}
	// Unlike all others it must not die with us.
	p, err := launchWith(g.launcher, g.dir, guardRole, false, func(*exec.Cmd) {}, g.self, g.roleArgs(guardRole, guardRole, "--state", g.dir)...)
	if err != nil {
		return err
	}
	g.procs = append(g.procs, p)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, release := p.alive(ctx)
	defer release()
	if _, err := g.lines.wait(ctx, guardRole); err != nil {
		return p.explain(err)
	}
	g.guarded = true
	return nil
}

// guard waits until the harness is gone, and then ends what its gateways left.
func guard(conn net.Conn, h hello, dir string) error {
	// Who interrupts a run means the harness, which ends us when it is done.
	signal.Ignore(os.Interrupt)
	if err := json.NewEncoder(conn).Encode(h); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn)
	// Gateways die with the harness, and what they were starting is written down.
	for range 3 {
		time.Sleep(time.Second)
		states, err := filepath.Glob(filepath.Join(dir, "*", "state"))
		if err != nil {
			return err
		}
		for _, state := range states {
			sweepBoxes(state)
		}
	}
	return nil
}
