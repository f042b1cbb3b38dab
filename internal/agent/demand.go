package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/runner"
)

// known is a runner that has been there.
type known struct {
	runner.Description
	seen    time.Time // when it has last asked or told something
	waiting int       // claims that it waits for
	retired []string  // instances that a later one has replaced
}

// mostRetired bounds how many earlier instances of a runner are known.
const mostRetired = 16

// fits reports whether a runner has what a run demands.
func (l *live) fits(r runner.Description) bool {
	d := l.demands
	for _, tag := range d.Tags {
		if !slices.Contains(r.Tags, tag) {
			return false
		}
	}
	return r.Places >= 0 && (d.Hostname == "" || d.Hostname == r.Hostname) &&
		(d.ExecutorType == "" || slices.Contains(r.Executors, d.ExecutorType)) &&
		(l.executor == "" || slices.Contains(r.Executors, l.executor)) &&
		(d.ProjectDir == "" || slices.Contains(r.ProjectDirs, d.ProjectDir)) &&
		(l.project == "" || len(r.ProjectDirs) == 0 || slices.ContainsFunc(r.ProjectDirs, func(dir string) bool { return within(l.project, dir) }))
}

// arrive notes that a runner waits for a claim, until left is called. It fails for one
// that has been replaced.
func (s *Service) arrive(me runner.Description) (left func(), err error) {
	if me.ID == "" || me.Instance == "" {
		return nil, fmt.Errorf("a runner that claims needs an id and an instance")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.runners[me.ID]
	switch {
	case k == nil:
		k = &known{}
		s.runners[me.ID] = k
	case slices.Contains(k.retired, me.Instance):
		return nil, replaced(me.ID)
	case k.Instance != me.Instance:
		if k.retired = append(k.retired, k.Instance); len(k.retired) > mostRetired {
			k.retired = k.retired[1:]
		}
		s.callWaiting() // so that the earlier one learns of it
	}
	k.Description, k.seen = me, time.Now()
	k.waiting++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		k.waiting--
		k.seen = time.Now()
	}, nil
}

func replaced(id string) error {
	return fmt.Errorf("runner %s has been started again since, or another one has its id; give each runner an id of its own", id)
}

// saw notes that the runner of a run is there. It needs s.mu.
func (s *Service) saw(l *live, now time.Time) {
	if k := s.runners[l.runner]; k != nil && k.Instance == l.instance {
		k.seen = now
	}
}

// there reports when a runner that fits a run was last there; zero for never. It needs
// s.mu.
func (s *Service) there(l *live, now time.Time) (last time.Time) {
	for _, k := range s.runners {
		if !l.fits(k.Description) {
			continue
		}
		if k.waiting > 0 {
			return now
		}
		if k.seen.After(last) {
			last = k.seen
		}
	}
	return last
}

// unmatched is the error of a run that no runner has taken: what it demands, and the
// runners that there are. It needs s.mu.
func (s *Service) unmatched(l *live) *api.Error {
	var wants []string
	add := func(what, value string) {
		if value != "" {
			wants = append(wants, what+" "+value)
		}
	}
	add("the executor", l.executor)
	if len(l.demands.Tags) > 0 {
		add("the tags", strings.Join(l.demands.Tags, ", "))
	}
	add("the hostname", l.demands.Hostname)
	add("the project folder", l.demands.ProjectDir)
	add("the executor type", l.demands.ExecutorType)
	add("work in", l.project)
	message := fmt.Sprintf("no runner that fits was there for %s: it demands %s", s.bounds.Load().Match, strings.Join(wants, "; "))
	if len(wants) == 0 {
		message = fmt.Sprintf("no runner was there for %s", s.bounds.Load().Match)
	}
	const most = 10
	var names []string
	for _, id := range slices.Sorted(maps.Keys(s.runners)) {
		k := s.runners[id]
		names = append(names, fmt.Sprintf("%s (hostname %s; tags %s; executors %s; project folders %s)", id,
			or(k.Hostname), or(k.Tags...), or(k.Executors...), or(k.ProjectDirs...)))
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	if len(names) == 0 {
		message += ". There are no runners"
	} else {
		message += ". The runners are: " + strings.Join(names, ", ")
	}
	return &api.Error{Kind: api.KindInfrastructure, Message: message}
}

// or joins words, where there are some.
func or(words ...string) string {
	if text := strings.Join(words, ", "); text != "" {
		return text
	}
	return "none"
}
