package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// rolloutGroup is the group of rows about sessions whose servers are in
// containers, and about databases.
const rolloutGroup = "rollouts"

// Names of rows about rollouts, beside open and fork.
const (
	rowProvision  = "provision"
	rowForkDuckDB = "fork-duckdb"
)

// What Tine aims at with rollouts.
const aimRaw = 1.1 // times what the engine, or a copy and a start, take alone, at most

// staticImage has our Go servers and nothing else; make setup makes it.
const staticImage = "tine-test/static"

// rolloutTrials is every row about rollouts, in the order of the report.
func rolloutTrials() []*trial {
	most := []limit{{"p50", aimRaw, false, ratioP50}}
	return []*trial{
		{
			Group: rolloutGroup, Name: rowOpen, About: "a session with a server in a container, against create, attach, start and initialize by the engine's API",
			limits: most, needs: needContainers, run: (*trials).rolloutOpen,
		},
		{
			Group: rolloutGroup, Name: rowFork, About: "one child of it, against commit, or a copy of the volume, and the same again",
			limits: most, needs: needContainers, run: (*trials).rolloutFork,
		},
		{
			Group: rolloutGroup, Name: rowProvision, About: "many sessions at once, until all are there, against as many containers at once",
			limits: most, needs: needContainers, run: (*trials).provision,
		},
		{
			Group: rolloutGroup, Name: rowForkDuckDB, About: "one child of a session with a DuckDB database, against cp -a and a bare start",
			limits: []limit{{"p50", aimCopied, false, ratioP50}}, needs: needDuckDB, run: (*trials).forkDuckDB,
		},
	}
}

// runnable keeps the rows for which everything is there. What is missing is said
// once for all rows that miss it.
func runnable(ctx context.Context, s settings, rows []*trial) (kept []*trial, notes []string) {
	without := map[string][]string{}
	var order []string
	for _, r := range rows {
		if r.needs == nil {
			kept = append(kept, r)
			continue
		}
		err := r.needs(ctx, s)
		if err == nil {
			kept = append(kept, r)
			continue
		}
		if without[err.Error()] == nil {
			order = append(order, err.Error())
		}
		without[err.Error()] = append(without[err.Error()], r.id())
	}
	for _, why := range order {
		notes = append(notes, fmt.Sprintf("without %s: %s", strings.Join(without[why], ", "), why))
	}
	return kept, notes
}

func needContainers(ctx context.Context, _ settings) error {
	e, err := dialEngine(ctx)
	if err != nil {
		return err
	}
	return e.cli.Close()
}

// toolsFolder is where the test set-up has put the programs of others.
func toolsFolder() (string, error) {
	for _, dir := range []string{os.Getenv("TINE_TEST_TOOLS"), ".cache/tools", "../.cache/tools"} {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(dir); err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New("there is no folder .cache/tools; run: make setup")
}

// Programs, relative to toolsFolder.
const (
	pythonProgram = "venv/bin/python"
	duckProgram   = "venv/bin/mcp-server-motherduck"
)

func needDuckDB(context.Context, settings) error {
	dir, err := toolsFolder()
	if err != nil {
		return err
	}
	for _, program := range []string{pythonProgram, duckProgram} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return fmt.Errorf("there is no %s in %s; run: make setup", program, dir)
		}
	}
	if _, err := exec.LookPath("cp"); err != nil {
		return fmt.Errorf("there is nothing to compare with: %w", err)
	}
	return nil
}

// pair is one case and what it is compared with.
type pair struct {
	raw, tine *series
}

func newPair(raw, tine string) pair { return pair{&series{name: raw}, &series{name: tine}} }

func (p pair) list() []*series { return []*series{p.raw, p.tine} }

// round takes so many samples of both, another first every time.
func (p pair) round(samples, round int, raw, tine func() error) error {
	turns := []func() error{raw, tine}
	for i := range samples {
		for j := range turns {
			if err := turns[(i+j+round)%len(turns)](); err != nil {
				return err
			}
		}
	}
	p.raw.endRound()
	p.tine.endRound()
	return nil
}

// started says whether a session's server runs, so that an answer which came
// before it did is not taken for a quick one.
func (w *world) started(ctx context.Context, session string, servers ...string) error {
	s, err := w.client.Session(ctx, session)
	if err != nil {
		return err
	}
	for _, m := range s.Members {
		if slices.Contains(servers, m.Server) && !m.Instance {
			return fmt.Errorf("it was answered before server %q had started", m.Server)
		}
	}
	return nil
}
