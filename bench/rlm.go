package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// rlmGroup is the group of rows about the kernels of the built-in server rlm.
const rlmGroup = "rlm"

// Names of rows about kernels, beside start and load.
const (
	rowExec  = "exec"
	rowExecs = "execs"
	rowLoad  = "load"
	rowCrowd = "crowd"
)

// What Tine aims at with kernels. Those in ms and MB are absolute.
const (
	aimExec  = 2 // ms more than a bare Python takes, fewer than
	aimAhead = 1 // times what jupyter_client and ipykernel take, less than
	aimGrown = 2 // MB in ten thousand execs, fewer than
)

// rlmTrials is every row about kernels, in the order of the report.
func rlmTrials() []*trial {
	ahead := func(name string, figure func(reading) float64) limit {
		return limit{name + " against jupyter", aimAhead, true, ours(figure)}
	}
	rows := []*trial{
		{
			Name: rowExec, About: "one line of code until its value is there, against a bare Python over a pipe, and jupyter",
			limits: []limit{
				{"p50 in ms over a bare Python, absolute", aimExec, true, ours(overMS)},
				ahead("p50", peerP50), ahead("p99", peerP99),
			},
			run: (*trials).kernelExec,
		},
		{
			Name: rowExecs, About: "so many in a row, and the memory of the kernel, without files, before and after them",
			limits: []limit{{"MB grown by the program", aimGrown, true, ours(grownMB)}, ahead("total", peerP50)},
			run:    (*trials).kernelExecs,
		},
		{
			Name: rowLoad, About: "a file into a variable, against a bare Python that reads it",
			run: (*trials).kernelLoad,
		},
		{
			Name: rowStart, About: "a session until its first exec is answered, against a start of a bare Python, and of a kernel of jupyter",
			limits: []limit{ahead("p50", peerP50)}, run: (*trials).kernelStart,
		},
		{
			Name: rowCrowd, About: "so many kernels at once until all have answered, and the memory of each, PSS of all its processes",
			limits: []limit{ahead("total", peerP50), ahead("memory", func(r reading) float64 { return r.Lighter })},
			run:    (*trials).kernelCrowd,
		},
	}
	for _, r := range rows {
		r.Group, r.needs = rlmGroup, needRLM
	}
	return rows
}

func needRLM(ctx context.Context, s settings) error {
	if err := needWalls(s); err != nil {
		return err
	}
	if err := exec.CommandContext(ctx, "python3", "-c", "import venv").Run(); err != nil {
		return fmt.Errorf("python3 has no venv: %w; install Python 3.11 or newer with it", err)
	}
	return nil
}

// kernelPython is the interpreter of kernels and of a bare Python. It has an environment of
// its own, as the peer has: what the machine has all programs in Python import would count
// for one of them.
func (t *trials) kernelPython(ctx context.Context) (string, error) {
	dir := filepath.Join(t.g.dir, "kernel-python")
	python := filepath.Join(dir, "bin", "python")
	if _, err := os.Stat(python); err == nil {
		return python, nil
	}
	if out, err := exec.CommandContext(ctx, "python3", "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("make an environment of Python: %w: %s", err, out)
	}
	return python, nil
}

// ours has only kernels of Tine judged.
func ours(figure func(reading) float64) func(reading) float64 {
	return func(r reading) float64 {
		if r.Server == "" {
			return 0
		}
		return figure(r)
	}
}

func overMS(r reading) float64  { return ms(r.Over) }
func peerP50(r reading) float64 { return r.Peer.P50 }
func peerP99(r reading) float64 { return r.Peer.P99 }

// grownMB is never zero where it was measured: to have become smaller is good enough.
func grownMB(r reading) float64 { return max(mb(r.Grown), 1e-6) }

// side is one of those that are compared: a kernel, or what stands in its place.
type side struct {
	*series
	run timed
}

// timed does something, once or often, and says how long each took.
type timed func() ([]time.Duration, error)

// once times something that is done once.
func once(do func() error) ([]time.Duration, error) {
	began := time.Now()
	err := do()
	return []time.Duration{time.Since(began)}, err
}

// A contest compares sides with a floor and a peer.
type contest struct {
	floor, peer *side // the peer is nil where there is none
	ours        []*side
	shows       shows
	before      func() error // each side; nil for nothing
}

func (c *contest) all() []*side {
	all := append([]*side{c.floor}, c.ours...)
	if c.peer != nil {
		all = append(all, c.peer)
	}
	return all
}

// rounds visits every side once a round, another first each time.
func (c *contest) rounds(rounds int) ([]reading, error) {
	all := c.all()
	for round := range rounds {
		// Each side is the first equally often, and each comes before each other one.
		turn := round % len(all)
		backwards := round/len(all)%2 == 1
		for i := range all {
			s := all[(i+turn)%len(all)]
			if backwards {
				s = all[(turn-i+len(all))%len(all)]
			}
			if c.before != nil {
				if err := c.before(); err != nil {
					return nil, err
				}
			}
			times, err := s.run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			s.now = times
			s.endRound()
		}
	}
	var out []reading
	for _, s := range all {
		r := s.against(c.floor.series)
		r.shows = c.shows
		if s != c.floor {
			r.Over = time.Duration(medianOver(s.rounds, c.floor.rounds))
		}
		if c.peer != nil && s != c.peer {
			p := s.against(c.peer.series)
			r.Peer = p.Ratio
		}
		out = append(out, r)
	}
	return out, nil
}

// medianOver is by how much one p50 is above another, round by round.
func medianOver(rounds, base []timing) float64 {
	var v []float64
	for i := range min(len(rounds), len(base)) {
		v = append(v, float64(rounds[i].P50-base[i].P50))
	}
	return median(v)
}
