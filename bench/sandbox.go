package main

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// sandboxGroup is the group of rows about servers in sandboxes.
const sandboxGroup = "sandbox"

// Names of rows about sandboxes, beside fork, memory and latency.
const (
	rowStart  = "start"
	rowPause  = "pause"
	rowWarm   = "warm"
	rowSpare  = "spare"
	rowParked = "parked"
	rowFill   = "fill"
)

// What Tine aims at with sandboxes. Those in ms are of a machine with nothing else
// to do, and mean little on another.
const (
	aimForked = 0.5 // of the native cold start of the same server, at most
	aimLittle = 100 // ms of a fork of a server that has little in memory, fewer than
	aimWarm   = 10  // ms of an open of what stands ready, fewer than
	aimSpare  = 5   // ms of a fork of what was copied ahead, fewer than
	aimParked = 2   // % of a core for all that are parked, fewer than

	roomBytes = 12e9 // that are to hold
	roomBoxes = 150  // sandboxes with Node
)

// sandboxTrials is every row about sandboxes, in the order of the report.
func sandboxTrials() []*trial {
	rows := []*trial{
		{
			Name: rowStart, About: "a session with one server in a sandbox, until its first answer, against the same without walls",
			run: (*trials).boxStart,
		},
		{
			Name: rowFork, About: "children with the memory of their parent, until all have answered, the time of one of them, against a native cold start",
			limits: []limit{
				{"p50 with Node", aimForked, false, of(kindNode, ratioP50)},
				{"p50 with Go in ms, absolute", aimLittle, true, of(kindGo, againstMS)},
				{"p50 with Python in ms, absolute", aimLittle, true, of(kindPython, againstMS)},
			},
			run: (*trials).boxFork,
		},
		{
			Name: rowPause, About: "how long the parent stands still for a fork, against a native cold start with as much put into memory",
			run: (*trials).boxPause,
		},
		{
			Name: rowWarm, About: "a session from what stands ready (warm), against a native cold start",
			limits: []limit{{"p50 in ms, absolute", aimWarm, true, unused(againstMS)}}, run: (*trials).boxWarm,
		},
		{
			Name: rowSpare, About: "one child of a session that was copied ahead (fork_ahead), against a native cold start",
			limits: []limit{{"p50 in ms, absolute", aimSpare, true, unused(againstMS)}}, run: (*trials).boxSpare,
		},
		{
			Name: rowMemory, About: "PSS of all processes of a sandbox, and without files, which all have together; how many 12 GB hold is worked out from that",
			limits: []limit{{fmt.Sprintf("in GB of %d with Node, worked out", roomBoxes), roomBytes / 1e9, false, of(kindNode, roomGB)}},
			run:    (*trials).boxMemory,
		},
		{
			Name: rowParked, About: "processor time of many sandboxes that nobody calls, as a share of a core, against those that are not parked yet",
			limits: []limit{{"in % of a core", aimParked, true, parkedPercent}}, run: (*trials).boxParked,
		},
		{
			Name: rowLatency, About: "calls to many live sandboxes in turn, against one that is alone",
			run: (*trials).boxLatency,
		},
		{
			Name: rowFill, About: "so many sandboxes with Node at once, each asked",
			limits: []limit{{"PSS in GB of all", roomBytes / 1e9, false, roomGB}}, needs: needFull, run: (*trials).boxFill,
		},
	}
	for _, r := range rows {
		r.Group = sandboxGroup
		more := r.needs
		r.needs = func(ctx context.Context, s settings) error {
			err := needSandbox(ctx, s)
			if err == nil && more != nil {
				err = more(ctx, s)
			}
			return err
		}
	}
	return rows
}

// needWalls says why the gateway has no sandboxes.
func needWalls(s settings) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return fmt.Errorf("there are no sandboxes on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	f, err := elf.Open(s.Tine)
	if err != nil {
		return fmt.Errorf("no sandboxes of this gateway: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is dynamically linked and has no sandboxes; build it with make build", s.Tine)
		}
	}
	return nil
}

func needSandbox(_ context.Context, s settings) error {
	if err := needWalls(s); err != nil {
		return err
	}
	tools, err := toolsFolder()
	if err != nil {
		return err
	}
	for _, program := range []string{pythonProgram, nodeServer} {
		if _, err := os.Stat(filepath.Join(tools, program)); err != nil {
			return fmt.Errorf("there is no %s in %s; run: make setup", program, tools)
		}
	}
	for _, program := range []string{"node", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is nothing to measure: %w", err)
		}
	}
	return nil
}

func needFull(_ context.Context, s settings) error {
	if !s.Full {
		return fmt.Errorf("%d sandboxes take a while; ask for them with --full", roomBoxes)
	}
	if free := memoryFree(); free < roomBytes {
		return fmt.Errorf("%d sandboxes are given %s, and %s are free", roomBoxes, sizeName(roomBytes), sizeName(free))
	}
	return nil
}

// of has only cases with one server judged.
func of(kind string, figure func(reading) float64) func(reading) float64 {
	return func(r reading) float64 {
		if r.Server != kind {
			return 0
		}
		return figure(r)
	}
}

// unused is a figure of what has not been called yet.
func unused(figure func(reading) float64) func(reading) float64 {
	return func(r reading) float64 {
		if r.Use {
			return 0
		}
		return figure(r)
	}
}

// againstMS is the p50 of what is compared with something. What is for show only
// has no say.
func againstMS(r reading) float64 {
	if r.Ratio.P50 == 0 || r.Flat {
		return 0
	}
	return ms(r.P50)
}

func roomGB(r reading) float64 { return float64(r.Room) / 1e9 }

// parkedPercent is never zero where it was measured: nothing at all is the best
// there is.
func parkedPercent(r reading) float64 {
	if !r.Parked {
		return 0
	}
	return max(r.CPU*100, 1e-6)
}
