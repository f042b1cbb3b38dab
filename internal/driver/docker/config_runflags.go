package docker

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/go-units"

	"github.com/tine-mcp/tine/internal/config"
)

// runFlag is a flag of docker run. take puts its value into the container, or
// says why that can't be.
type runFlag struct {
	name, short string
	boolean     bool
	take        func(r *runArgs, value string) error
}

// runFlags are the flags that mean something here.
var runFlags = []runFlag{
	{"env", "e", false, (*runArgs).env},
	{"env-file", "", false, (*runArgs).envFile},
	{"volume", "v", false, (*runArgs).volume},
	{"mount", "", false, (*runArgs).mount},
	{"tmpfs", "", false, func(r *runArgs, v string) error { r.add("tmpfs", &r.to.Tmpfs, v); return nil }},
	{"network", "", false, takeNetwork},
	{"net", "", false, takeNetwork},
	{"memory", "m", false, func(r *runArgs, v string) error { return r.bytes("memory", &r.to.Memory, v, config.MinMemory) }},
	{"shm-size", "", false, func(r *runArgs, v string) error { return r.bytes("shm_size", &r.to.ShmSize, v, 4<<10) }},
	{"cpus", "", false, takeCPUs},
	{"pids-limit", "", false, takePids},
	{"cap-add", "", false, func(r *runArgs, v string) error { return r.capability("cap_add", &r.to.CapAdd, v) }},
	{"cap-drop", "", false, func(r *runArgs, v string) error { return r.capability("", &r.to.CapDrop, v) }},
	{"user", "u", false, func(r *runArgs, v string) error { return r.word("user", &r.to.User, v) }},
	{"workdir", "w", false, takeWorkdir},
	{"hostname", "h", false, func(r *runArgs, v string) error { return r.word("hostname", &r.to.Hostname, v) }},
	{"runtime", "", false, func(r *runArgs, v string) error { return r.word("runtime", &r.to.Runtime, v) }},
	{"init", "", true, func(r *runArgs, v string) error { return r.flag("init", &r.to.Init, v) }},
	{"privileged", "", true, func(r *runArgs, v string) error { return r.flag("", &r.to.Privileged, v) }},
	{"read-only", "", true, func(r *runArgs, v string) error { return r.flag("", &r.to.ReadOnly, v) }},
	{"label", "l", false, takeLabel},
	{"entrypoint", "", false, takeEntrypoint},
	{"device", "", false, func(r *runArgs, v string) error { r.add("", &r.to.Devices, v); return nil }},
	{"security-opt", "", false, func(r *runArgs, v string) error { r.add("", &r.to.SecurityOpt, v); return nil }},
	{"ulimit", "", false, takeUlimit},
	{"add-host", "", false, takeHost},
	{"dns", "", false, takeDNS},
	{"publish", "p", false, takePort},
	{"pull", "", false, takePull},

	// Settings of the terminal that docker run was typed at, or that hold anyway.
	{"rm", "", true, takeNothing},
	{"interactive", "i", true, takeNothing},
	{"detach", "d", true, takeNothing},
	{"attach", "a", false, takeNothing},
	{"sig-proxy", "", true, takeNothing},
	{"quiet", "q", true, takeNothing},
	{"expose", "", false, takeNothing},
}

// refusedFlags are known and can't be had, each with the reason.
var refusedFlags = []runFlag{
	{"name", "", false, refuse("each instance has a name of its own, so that there can be several; remove it")},
	{"tty", "t", true, func(r *runArgs, v string) error {
		if on, err := strconv.ParseBool(v); err == nil && !on {
			return nil
		}
		return errors.New("a terminal would mangle the messages; remove it")
	}},
	{"publish-all", "P", true, refuse("Tine reaches the one port that it needs by itself; remove it")},
	{"restart", "", false, func(r *runArgs, v string) error {
		if v == "no" {
			return nil
		}
		return errors.New("what has died is started again by Tine; remove it")
	}},
	{"cidfile", "", false, refuse("Tine keeps track of containers by itself; remove it")},
	{"log-driver", "", false, refuse("Tine keeps what a server writes; remove it")},
	{"log-opt", "", false, refuse("Tine keeps what a server writes; remove it")},
	{"label-file", "", false, refuse("write the labels with --label")},
	{"volumes-from", "", false, refuse("name the volumes with -v NAME:PATH")},
	{"link", "", false, refuse("put both on one --network")},
}

// otherFlags are those of docker run that there is no key for: with a value, and
// without one.
var (
	otherFlags = strings.Fields(`annotation blkio-weight blkio-weight-device cgroup-parent cgroupns cpu-count cpu-percent
		cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpuset-cpus cpuset-mems detach-keys device-cgroup-rule
		device-read-bps device-read-iops device-write-bps device-write-iops dns-option dns-search domainname gpus group-add
		health-cmd health-interval health-retries health-start-interval health-start-period health-timeout io-maxbandwidth
		io-maxiops ip ip6 ipc isolation kernel-memory link-local-ip mac-address memory-reservation memory-swap
		memory-swappiness network-alias oom-score-adj pid platform stop-signal stop-timeout storage-opt sysctl userns uts
		volume-driver`)
	otherSwitches = strings.Fields("disable-content-trust no-healthcheck oom-kill-disable use-api-socket")
	otherShort    = map[string]string{"cpu-shares": "c"}
)

func refuse(why string) func(*runArgs, string) error {
	return func(*runArgs, string) error { return errors.New(why) }
}

func takeNothing(*runArgs, string) error { return nil }

func takeNetwork(r *runArgs, v string) error {
	if strings.HasPrefix(v, "container:") {
		return errors.New("another container may end at any time; name a network")
	}
	if v == "default" {
		v = "bridge"
	}
	return r.word("network", &r.to.Network, v)
}

func takeCPUs(r *runArgs, v string) error {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(f) || f < 0.01 || f > 1024 {
		return errors.New("wants a number from 0.01 to 1024")
	}
	r.to.CPUs = f
	return r.says("cpus", v)
}

// takePids has -1, and 0 as Docker has it, for no bound.
func takePids(r *runArgs, v string) error {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < -1 || n > config.MaxPids {
		return errors.New("wants a whole number, -1 for no bound")
	}
	if n == 0 {
		n = -1
	}
	r.to.Pids = n
	return r.says("pids", v)
}

func takeWorkdir(r *runArgs, v string) error {
	if !path.IsAbs(v) {
		return errors.New("wants a whole path in the container")
	}
	return r.word("workdir", &r.to.Workdir, path.Clean(v))
}

func takeLabel(r *runArgs, v string) error {
	key, value, _ := strings.Cut(v, "=")
	if key == "" || ownedByTine.MatchString(key) {
		return fmt.Errorf("labels of Tine's own begin with %s; call it otherwise", ownPrefix)
	}
	if r.to.Labels == nil {
		r.to.Labels = map[string]string{}
	}
	if n := r.c.Get("labels"); n != nil && n.Get(key) != nil {
		return errors.New("docker.labels has this one too; keep one")
	}
	r.to.Labels[key] = value
	r.hide("docker.labels."+key, value)
	return nil
}

func takeEntrypoint(r *runArgs, v string) error {
	r.to.Entrypoint = []string{v}
	r.hide("docker.entrypoint.0", v)
	return r.says("entrypoint", v)
}

func takeUlimit(r *runArgs, v string) error {
	if _, err := units.ParseUlimit(v); err != nil {
		return errors.New("wants NAME=SOFT[:HARD], like nofile=1024:4096")
	}
	r.add("", &r.to.Ulimits, v)
	return nil
}

func takeHost(r *runArgs, v string) error {
	i := strings.IndexAny(v, ":=")
	if i < 1 || i+1 == len(v) {
		return errors.New("wants NAME:ADDRESS")
	}
	r.add("", &r.to.ExtraHosts, v[:i]+":"+v[i+1:])
	return nil
}

func takeDNS(r *runArgs, v string) error {
	if _, err := netip.ParseAddr(v); err != nil {
		return errors.New("wants an address, like 10.0.0.2")
	}
	r.add("", &r.to.DNS, v)
	return nil
}

func takePort(r *runArgs, v string) error {
	port, kind, _ := strings.Cut(v, "/")
	if strings.Contains(port, ":") {
		port = port[strings.LastIndexByte(port, ':')+1:]
		return fmt.Errorf("a port of the host would be taken by the first instance; write -p %s, the port in the container, and Tine finds one of the host", digits(port))
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || kind != "" && kind != "tcp" {
		return errors.New("wants one TCP port in the container, like -p 8000")
	}
	if r.to.Port != 0 && r.to.Port != n {
		return errors.New("is another port than the one given already; keep the one that speaks MCP")
	}
	r.to.Port = n
	return nil
}

// digits is a port where it is one, so that nothing else is quoted.
func digits(s string) string {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65536 {
		return s
	}
	return "PORT"
}

func takePull(r *runArgs, v string) error {
	if !slices.Contains(pulls, v) {
		return fmt.Errorf("wants %s", config.OrList(pulls))
	}
	r.to.Pull = v
	return r.says("pull", v)
}
