package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// cell is one row at one number of callers, with its sample of every round.
type cell struct {
	row     *row
	callers int
	rounds  []sample
	err     error // why it was given up
}

// run makes one whole measurement. Progress goes to the progress writer.
func run(ctx context.Context, s settings, progress io.Writer) (rep *report, err error) {
	rows, sessions := selectRows(allRows(), s.Only), selectTrials(slices.Concat(allTrials(), rolloutTrials(), sandboxTrials(), rlmTrials(), pythonTrials(), openEnvTrials(), nodeTrials(), agentTrials()), s.Only)
	if len(rows)+len(sessions) == 0 {
		return nil, fmt.Errorf("--only %v names no row", s.Only)
	}
	relayed := len(rows) > 0
	var notes []string
	if len(sessions) > 0 || slices.ContainsFunc(rows, (*row).usesTine) {
		if s.Tine, err = findTine(s.Tine); err != nil {
			notes = append(notes, "without Tine: "+err.Error())
			sessions = nil
			if rows = slices.DeleteFunc(rows, (*row).usesTine); len(rows) == 0 {
				return nil, err
			}
		}
	}
	sessions, missing := runnable(ctx, s, sessions)
	if notes = append(notes, missing...); len(rows)+len(sessions) == 0 {
		return nil, errors.New(strings.Join(notes, "\n"))
	}
	g, err := newRig(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.assemble(ctx, rows); err != nil {
		return nil, err
	}

	started := time.Now()
	cells, err := rounds(ctx, s, rows, progress)
	if err != nil {
		return nil, err
	}
	rep = summarize(s, cells)
	if relayed {
		rep.Aims = judge(rep.Lines)
	}
	readings, aims, more, err := runTrials(ctx, g, sessions, progress)
	if err != nil {
		return nil, err
	}
	rep.Readings, rep.Aims = readings, append(rep.Aims, aims...)
	rep.Notes = append(notes, more...)
	rep.Started, rep.Took = started, time.Since(started)
	return rep, nil
}

func findTine(path string) (string, error) {
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("no gateway at %q: build it with make build, or name it with --tine", path)
	}
	return filepath.Abs(found)
}

// makeCells orders the cells as they are reported, so that those which are
// compared with each other are measured close together.
func makeCells(rows []*row, callers []int) []*cell {
	var cells []*cell
	for len(rows) > 0 {
		group := rows
		if end := slices.IndexFunc(rows, func(r *row) bool { return r.Group != rows[0].Group }); end > 0 {
			group = rows[:end]
		}
		for _, n := range callers {
			for _, r := range group {
				cells = append(cells, &cell{row: r, callers: n})
			}
		}
		rows = rows[len(group):]
	}
	return cells
}

// rounds visits every cell once a round. Each round starts at another row, so
// that none is always the one after a pause.
func rounds(ctx context.Context, s settings, rows []*row, progress io.Writer) ([]*cell, error) {
	cells := makeCells(rows, s.Callers)
	if len(cells) == 0 {
		return nil, nil
	}
	var ids atomic.Uint64
	for round := range s.Rounds {
		fmt.Fprintf(progress, "round %d of %d\n", round+1, s.Rounds)
		for i := range cells {
			c := cells[(i+round)%len(cells)]
			if c.err != nil {
				continue
			}
			// Our own garbage of the cell before is not this cell's.
			runtime.GC()
			sample, err := measure(ctx, c.row, c.callers, s, &ids)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("stopped in round %d: %w", round+1, context.Cause(ctx))
			}
			if err != nil {
				c.err = err
				fmt.Fprintf(progress, "%s at %d callers is given up: %v\n", c.row.id(), c.callers, err)
				continue
			}
			if sample.Errors > 0 {
				fmt.Fprintf(progress, "%s at %d callers: %d calls failed, the first: %v\n", c.row.id(), c.callers, sample.Errors, sample.First)
			}
			c.rounds = append(c.rounds, sample)
		}
	}
	return cells, nil
}
