package docker

import (
	"context"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

// networkName is that of this gateway's network for servers that are reached in a
// certain way. Two ways need two: what has no way out can't publish a port.
func (d *Driver) networkName(reach string) string {
	return "tine-" + digest(d.opts.Gateway) + "-" + reach
}

// enterNetwork makes a network of ours where it is missing, and counts the caller as a
// user of it.
func (e *engine) enterNetwork(ctx context.Context, name, reach string) error {
	e.netsMu.Lock()
	defer e.netsMu.Unlock()
	if err := e.makeNetwork(ctx, name, reach); err != nil {
		return e.explain("make a network", err)
	}
	e.nets[name]++
	return nil
}

func (e *engine) makeNetwork(ctx context.Context, name, reach string) error {
	if _, err := e.cli.NetworkInspect(ctx, name, client.NetworkInspectOptions{}); err == nil || !gone(err) {
		return err
	}
	o := client.NetworkCreateOptions{
		Driver:   "bridge",
		Internal: reach == ReachAddress,
		Labels:   e.d.labels(driver.Spec{}, roleNetwork, ""),
	}
	e.mu.Lock()
	podman := e.known != nil && e.known.podman
	e.mu.Unlock()
	if !podman {
		// Servers don't see each other, and where a port is published nothing is
		// sent on for them.
		o.Options = map[string]string{
			"com.docker.network.bridge.enable_icc":           "false",
			"com.docker.network.bridge.enable_ip_masquerade": "false",
		}
	}
	_, err := e.cli.NetworkCreate(ctx, name, o)
	if err != nil && errdefs.IsConflict(err) {
		return nil // an earlier gateway's, or made in this moment
	}
	return err
}

// leaveNetwork removes a network with its last user.
func (e *engine) leaveNetwork(ctx context.Context, name string) {
	e.letGoOfNetwork(name)
	e.tidyNetwork(ctx, name)
}

// letGoOfNetwork counts one less.
func (e *engine) letGoOfNetwork(name string) {
	e.netsMu.Lock()
	defer e.netsMu.Unlock()
	if e.nets[name]--; e.nets[name] <= 0 {
		delete(e.nets, name)
	}
}

// tidyNetwork removes a network that no instance uses. Instances that were left use it
// too, which the engine knows; it keeps a network with containers in it.
func (e *engine) tidyNetwork(ctx context.Context, name string) {
	e.netsMu.Lock()
	defer e.netsMu.Unlock()
	if e.nets[name] > 0 {
		return
	}
	res, err := e.cli.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if err != nil || len(res.Network.Containers) > 0 || res.Network.Labels[labelGateway] != e.d.opts.Gateway {
		return
	}
	if e.usesNetwork(ctx, name) {
		return
	}
	if _, err := e.cli.NetworkRemove(ctx, name, client.NetworkRemoveOptions{}); err != nil && !gone(err) {
		e.d.opts.Log.Debug("an unused network stays", "network", name, "error", err)
	}
}

// usesNetwork reports whether a container of ours that does not run needs it.
func (e *engine) usesNetwork(ctx context.Context, name string) bool {
	list, err := e.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: e.d.ours()})
	if err != nil {
		return true
	}
	for _, c := range list.Items {
		if c.HostConfig.NetworkMode == name {
			return true
		}
		if c.NetworkSettings != nil {
			for n := range maps.Keys(c.NetworkSettings.Networks) {
				if n == name {
					return true
				}
			}
		}
	}
	return false
}

// address is where a container is reached.
func (e *engine) address(ctx context.Context, rec record) (string, error) {
	res, err := e.cli.ContainerInspect(ctx, rec.ref(), client.ContainerInspectOptions{})
	if err != nil {
		return "", e.explain("find the container's address", err)
	}
	if rec.Network == "host" {
		return fmt.Sprintf("127.0.0.1:%d", rec.Port), nil
	}
	s := res.Container.NetworkSettings
	if s == nil {
		return "", fmt.Errorf("the container has no address")
	}
	if rec.Reach == ReachPort {
		for port, bindings := range s.Ports {
			if int(port.Num()) == rec.Port && len(bindings) > 0 {
				return "127.0.0.1:" + bindings[0].HostPort, nil
			}
		}
		return "", fmt.Errorf("the engine published no port for %d", rec.Port)
	}
	for name, end := range s.Networks {
		if end != nil && end.IPAddress.IsValid() && (name == rec.Network || len(s.Networks) == 1) {
			return fmt.Sprintf("%s:%d", end.IPAddress, rec.Port), nil
		}
	}
	return "", fmt.Errorf("the container has no address on the network %q", rec.Network)
}
