package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/runner"
)

// shown is a run as a caller is shown it now: to those who may read it, also what a pending
// one waits for.
func (s *Service) shown(l look, r *run) api.Run {
	out := l.show(r)
	if r.State != api.RunPending || !l.reads {
		return out
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.live[r.ID]; of != nil && !of.claimed() {
		out.WaitsFor = s.waitsFor(of, time.Now())
	}
	return out
}

// waitsFor is what a pending run waits for; empty where one will claim it now. It needs
// s.mu.
func (s *Service) waitsFor(l *live, now time.Time) string {
	fails := ", and it fails at " + s.deadline(l).UTC().Format(time.RFC3339)
	var fits []*known
	for _, k := range s.runners {
		if l.fits(k.Description) {
			fits = append(fits, k)
		}
	}
	if len(fits) == 0 {
		return s.missing(l) + fails
	}
	lent := s.lent()
	full, places := 0, 0
	for _, k := range fits {
		switch {
		case k.waiting == 0:
		case k.Places == 0 || s.working(k, lent) < k.Places || l.waits != "" && !lent[l.waits] && s.has(k.Description, l.waits):
			return ""
		default:
			full++
			places += k.Places
		}
	}
	switch {
	case full == 0:
		return "a runner that fits; none has been heard of since " + s.there(l, now).UTC().Format(time.RFC3339) + fails
	case places == 1:
		return "a place; another run has the only one (agents.concurrency of the config)"
	}
	return fmt.Sprintf("a place; other runs have all %d (agents.concurrency of the config)", places)
}

// working is how many places of a runner are taken. It needs s.mu.
func (s *Service) working(k *known, lent map[string]bool) (n int) {
	for _, l := range s.live {
		if l.claimed() && l.runner == k.ID && !lent[l.id] {
			n++
		}
	}
	return n
}

// missing is what a run demands of a runner and none has. It needs s.mu.
func (s *Service) missing(l *live) string {
	some := func(has func(r runner.Description) bool) bool {
		for _, k := range s.runners {
			if k.Places >= 0 && has(k.Description) {
				return true
			}
		}
		return false
	}
	if !some(func(runner.Description) bool { return true }) {
		return "a runner; none is there that takes runs"
	}
	var none []string
	want := func(value, words string, has func(r runner.Description) bool) {
		if value != "" && !some(has) {
			none = append(none, fmt.Sprintf("%s %q", words, value))
		}
	}
	executor := func(name string) func(runner.Description) bool {
		return func(r runner.Description) bool { return slices.Contains(r.Executors, name) }
	}
	d := l.demands
	for _, tag := range d.Tags {
		want(tag, "with the tag", func(r runner.Description) bool { return slices.Contains(r.Tags, tag) })
	}
	want(l.executor, "with the executor", executor(l.executor))
	if d.ExecutorType != l.executor {
		want(d.ExecutorType, "with the executor", executor(d.ExecutorType))
	}
	want(d.Hostname, "on the host", func(r runner.Description) bool { return r.Hostname == d.Hostname })
	want(d.ProjectDir, "for the project folder", func(r runner.Description) bool { return slices.Contains(r.ProjectDirs, d.ProjectDir) })
	want(l.project, "that works in the folder", func(r runner.Description) bool {
		return len(r.ProjectDirs) == 0 || slices.ContainsFunc(r.ProjectDirs, func(dir string) bool { return within(l.project, dir) })
	})
	if len(none) == 0 {
		none = []string{"with all that it demands"}
	}
	return "a runner " + strings.Join(none, ", ") + "; none is there"
}
