package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// sessionGroup is the group of rows about sessions.
const sessionGroup = "sessions"

// Names of rows about sessions.
const (
	rowOpen        = "open"
	rowFork        = "fork"
	rowForkMany    = "fork-many"
	rowForkProcess = "fork-process"
	rowMemory      = "memory"
	rowLatency     = "latency"
)

// trial is one row about sessions. It compares its own cases with each other,
// in rounds of its own that visit each of them.
type trial struct {
	Group  string // empty for sessionGroup
	Name   string
	About  string
	limits []limit
	needs  func(context.Context, settings) error // says what is missing; nil where nothing can be
	run    func(*trials, context.Context) ([]reading, error)
}

func (t *trial) group() string { return cmp.Or(t.Group, sessionGroup) }
func (t *trial) id() string    { return t.group() + "/" + t.Name }

// allTrials is every row about sessions, in the order of the report.
func allTrials() []*trial {
	return []*trial{
		{
			Name: rowOpen, About: "a session of the built-in servers, its workspace small or large, against small",
			limits: []limit{{"p50 in ms", aimQuick, true, requestP50}, {"p50, the same", aimSame, false, ratioP50}}, run: (*trials).open,
		},
		{
			Name: rowFork, About: "one child of a session that was just used, 1 fork from the first or many, against small and 1",
			limits: []limit{{"p50 in ms", aimQuick, true, requestP50}, {"p50, the same", aimSame, false, ratioP50}}, run: (*trials).fork,
		},
		{
			Name: rowForkMany, About: "many children in one request, the time of one of them, against a child alone",
			run: (*trials).forkMany,
		},
		{
			Name: rowForkProcess, About: "one child of a session with a program that has state, against cp -a and a bare start",
			limits: []limit{{"p50", aimCopied, false, ratioP50}}, run: (*trials).forkProcess,
		},
		{
			Name: rowMemory, About: "anonymous memory of the gateway, its sessions idle",
			limits: []limit{{"in MB", aimMemory / 1e6, true, anonMB}}, run: (*trials).memory,
		},
		{
			Name: rowLatency, About: "the same load over many sessions, against few",
			limits: []limit{{"p50, the same", aimSame, false, ratioP50}, {"p95, the same", aimSame, false, ratioP95}}, run: (*trials).latency,
		},
	}
}

func selectTrials(all []*trial, only []string) []*trial {
	return slices.DeleteFunc(all, func(t *trial) bool { return !chosen(only, t.group(), t.id()) })
}

// trials is what the rows about sessions share while they run.
type trials struct {
	g     *rig
	s     settings
	notes []string

	worlds  []*sizedWorld // with a small and with a large workspace; nil before the first use
	crowded *crowd        // the many sessions; nil before the first use
	kinds   []*boxKind    // servers for sandboxes; nil before the first use
	watched *boxCrowd     // what was seen of many sandboxes; nil before the first look

	peer     *jupyter // kernels of Jupyter; nil before the first use
	peerless bool     // there are none
}

// runTrials runs the rows one after another. One that fails is reported as
// failed, and the next is run.
func runTrials(ctx context.Context, g *rig, rows []*trial, progress io.Writer) (out []reading, aims []aim, notes []string, err error) {
	t := &trials{g: g, s: g.settings}
	for _, row := range rows {
		began := time.Now()
		got, err := row.run(t, ctx)
		if ctx.Err() != nil {
			return nil, nil, nil, fmt.Errorf("stopped in %s: %w", row.id(), context.Cause(ctx))
		}
		if err != nil {
			fmt.Fprintf(progress, "%s is given up: %v\n", row.id(), err)
			got = []reading{{Failure: err.Error()}}
		}
		for i := range got {
			got[i].Row, got[i].About = row.id(), row.About
		}
		out = append(out, got...)
		for _, l := range row.limits {
			aims = append(aims, l.judge(row.id(), got))
		}
		fmt.Fprintf(progress, "%s took %.1f s\n", row.id(), time.Since(began).Seconds())
	}
	return out, aims, t.notes, nil
}
