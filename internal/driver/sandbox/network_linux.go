//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/tine-mcp/tine/internal/config/domains"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/egress"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// Networks of gVisor.
const (
	netNone    = "none"
	netSandbox = "sandbox" // a namespace of ours
	netHost    = "host"
)

// A server with a list of domains has a link of its own, which leads to the proxy
// and to nothing else. The addresses are the same for all, as each is in a network
// of its own: a fork finds the proxy where it was, and it is another one.
var proxyNetwork = control.Network{Inner: "10.111.0.2/30", Outer: "10.111.0.1/30", Port: 3128}

const proxyAddress = "10.111.0.1:3128"

// proxyEnv is how programs learn of the proxy. ALL_PROXY names no SOCKS, though
// the proxy speaks it: many clients of HTTP fail at once where a variable does and
// they don't know it.
func proxyEnv() map[string]string {
	env := map[string]string{"NODE_USE_ENV_PROXY": "1"}
	for name, value := range map[[2]string]string{
		{"HTTP_PROXY", "http_proxy"}:   "http://" + proxyAddress,
		{"HTTPS_PROXY", "https_proxy"}: "http://" + proxyAddress,
		{"ALL_PROXY", "all_proxy"}:     "http://" + proxyAddress,
		{"NO_PROXY", "no_proxy"}:       "localhost,127.0.0.1",
	} {
		env[name[0]], env[name[1]] = value, value
	}
	return env
}

// network makes the network namespace of a sandbox, where it needs one of ours,
// and returns its path. The sandbox keeps it; drop lets go of it.
func (m *making) network(ctx context.Context) (path string, drop func(), err error) {
	if m.plan.net != netSandbox {
		return "", func() {}, nil
	}
	n := control.Network{Name: m.rec.Sandbox}
	if len(m.plan.box.Domains) > 0 {
		n.Inner, n.Outer, n.Port = proxyNetwork.Inner, proxyNetwork.Outer, proxyNetwork.Port
	}
	made, cancel := afterwards(ctx)
	defer cancel()
	rep, files, err := m.help.call(made, control.Request{Op: control.OpNetwork, Network: &n})
	drop = func() {
		after, cancel := afterwards(ctx)
		defer cancel()
		// A helper that is gone has let go of it.
		_, _, _ = m.help.call(after, control.Request{Op: control.OpDrop, Network: &control.Network{Name: n.Name}})
	}
	if err == nil && n.Inner != "" {
		m.listener, err = listenerOf(files)
	}
	if err != nil {
		drop()
		return "", nil, err
	}
	return rep.Path, drop, nil
}

// listenerOf makes a listener of the one file, which it takes.
func listenerOf(files []*os.File) (net.Listener, error) {
	defer control.Close(files)
	if len(files) != 1 {
		return nil, errors.New("the proxy got no place to listen at")
	}
	return net.FileListener(files[0])
}

// open lets the proxy take the connections of the instance, and the listener.
func (i *instance) open(l net.Listener) error {
	allow, err := domains.Parse(i.rec.Domains)
	if err != nil {
		l.Close()
		return fmt.Errorf("sandbox.network: %w", err)
	}
	o := i.d.egress
	o.Server, o.Allow, o.Log = i.h.Server, allow, i.log
	if report := i.d.opts.Network; report != nil {
		o.Done = func(c egress.Connection) {
			report(driver.Network{
				Server: i.h.Server, Session: i.h.Session, Ordinal: i.rec.Ordinal,
				Host: c.Host, Port: c.Port, Address: c.Address, Protocol: c.Protocol, Allowed: c.Allowed, Reason: c.Reason,
				Sent: c.Sent, Received: c.Received, Began: c.Began, Took: c.Took,
			})
		}
	}
	i.door = egress.New(o)
	i.watched.Go(func() {
		if err := i.door.Serve(l); err != nil {
			i.log.Warn("a sandbox reaches nothing any more: its proxy has ended", "server", i.h.Server, "error", err)
		}
	})
	return nil
}

// reopen lets the proxy of an instance that an earlier gateway started listen
// again. One without it has more to lose than its connections: it is no error.
func (i *instance) reopen(ctx context.Context) {
	if len(i.rec.Domains) == 0 {
		return
	}
	l, err := i.d.listenAgain(ctx, i.rec)
	if err == nil {
		err = i.open(l)
	}
	if err != nil {
		i.log.Warn("a sandbox reaches nothing any more; stop it to have it start anew", "server", i.h.Server, "error", err)
	}
}

// shut ends the proxy and its connections. Twice is fine.
func (i *instance) shut() {
	if i.door != nil {
		i.door.Close()
	}
}

// againWait is how long the proxy of a gateway that is ending may still listen.
const againWait = 5 * time.Second

// listenAgain makes another listener in the network of a sandbox.
func (d *Driver) listenAgain(ctx context.Context, rec record) (net.Listener, error) {
	hash, err := d.helpers.ours()
	if err != nil {
		return nil, err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", rec.PID))
	if err != nil {
		return nil, fmt.Errorf("find the network of the sandbox: %w", err)
	}
	defer ns.Close()
	if !rec.ID.Lives() { // it may have been another's
		return nil, os.ErrProcessDone
	}
	ctx, cancel := context.WithTimeout(ctx, againWait)
	defer cancel()
	for {
		l, err := askListener(ctx, d.opts.Start, d.helpers.path(hash), ns)
		if err == nil {
			return l, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// askListener runs the binary for one listener.
func askListener(ctx context.Context, start func(Command) (Running, error), path string, ns *os.File) (net.Listener, error) {
	conn, theirs, err := control.Pair()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stderr := new(tail)
	run, err := start(Command{Path: path, Arg: control.ListenArg, Files: []*os.File{theirs}, Stderr: stderr})
	theirs.Close()
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, run.Kill)()
	var rep control.Reply
	n := proxyNetwork
	err = conn.Write(control.Request{Op: control.OpListen, Network: &n}, ns)
	var files []*os.File
	if err == nil {
		files, err = conn.Read(&rep)
	}
	ended := run.Wait()
	switch {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("ask for another listener: %w", err), ended, errors.New(stderr.String()))
	case rep.Error != "":
		control.Close(files)
		return nil, errors.New(rep.Error)
	}
	return listenerOf(files)
}
