package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
)

const (
	// At most so many segments, and of so many bytes if it is more than one, are
	// carried over at once. The file of a session is synced once for all of them,
	// so that a disk which is slow at that falls behind less the more there is.
	passSegments = 64
	passSize     = 64 << 20
)

// passOf returns the first of the segments that are due, as many as are carried
// over at once.
func passOf(due []segment) []segment {
	n, size := 0, int64(0)
	for n < len(due) && n < passSegments && (n == 0 || size+due[n].size <= passSize) {
		size += due[n].size
		n++
	}
	return slices.Clone(due[:n])
}

// carry copies the calls of wanted sessions to the archive, from segments that
// are about to be dropped. The caller does not hold mu.
func (j *Journal) carry(all []segment) error {
	j.kept.begin()
	plan, err := j.plan(all)
	if err == nil && len(plan) > 0 {
		err = j.carryLines(plan)
	}
	return errors.Join(err, j.kept.end())
}

// plan finds the calls of wanted sessions.
func (j *Journal) plan(all []segment) (map[string][]spot, error) {
	plan := make(map[string][]spot)
	wanted := make(map[string]bool)
	choose := func(session []byte) bool {
		want, asked := wanted[string(session)]
		if !asked {
			want = j.wants(string(session))
			wanted[string(session)] = want
		}
		return want
	}
	var sc scanner
	for _, s := range all {
		if j.isClosing() {
			return nil, ErrClosed
		}
		err := j.lines(&sc, s, 0, choose, func(l *line) error {
			session := l.head.Session
			plan[session] = append(plan[session], spot{l.head.Seq, s.n, l.offset, l.length})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// carryLines writes the planned lines, one session after the other.
func (j *Journal) carryLines(plan map[string][]spot) error {
	open := make(map[int64]*os.File)
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	from := func(segment int64) (io.ReaderAt, error) {
		if f := open[segment]; f != nil {
			return f, nil
		}
		f, err := os.Open(j.path(segment))
		if err == nil {
			open[segment] = f
		}
		return f, err
	}
	// The lines of another session may still fit.
	var failed error
	for _, session := range slices.Sorted(maps.Keys(plan)) {
		if j.isClosing() {
			return ErrClosed
		}
		if err := j.kept.add(session, plan[session], from); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// lines hands out the calls of chosen sessions in a segment, from an offset on;
// none of a file that is gone.
func (j *Journal) lines(sc *scanner, s segment, offset int64, choose func(session []byte) bool, take func(*line) error) error {
	if offset >= s.size {
		return nil
	}
	f, err := os.Open(j.path(s.n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sc.at(f, offset, s.size)
	sc.choose = func(line []byte) bool { return choose(sessionOf(line)) }
	for {
		l, err := sc.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", j.path(s.n), err)
		}
		// The scanner has read the head of a long line anyway.
		if l.kind == call && choose([]byte(l.head.Session)) {
			if err := take(&l); err != nil {
				return err
			}
		}
	}
}

// wants asks whether calls of a session outlive their segments.
func (j *Journal) wants(session string) bool {
	return j.wanted != nil && keepable(session) && j.wanted(session)
}

func (j *Journal) isClosing() bool {
	select {
	case <-j.closing:
		return true
	default:
		return false
	}
}

// reportCarry logs when carrying over begins to fail and when it works again.
func (j *Journal) reportCarry(err error) {
	if errors.Is(err, ErrClosed) {
		return
	}
	if err != nil {
		j.errors.Add(1)
	}
	switch {
	case err != nil && !j.stuck:
		j.log.Warn("old calls of sessions that are still wanted can't be carried over; files of the journal stay beyond its bounds until there is room or the folder can be written",
			"folder", j.kept.dir, "error", err)
	case err == nil && j.stuck:
		j.log.Info("old calls of wanted sessions are carried over again")
	}
	j.stuck = err != nil
}

// Forget deletes the archived calls of sessions whose trajectories are no longer
// kept. Wanted must already say no. It waits for no more than the writing of one
// session's calls.
func (j *Journal) Forget(sessions ...string) {
	if j.isClosing() {
		return // the next sweep does it
	}
	for _, session := range sessions {
		if err := j.kept.forget(session); err != nil {
			j.log.Debug("a file of the journal can't be deleted now", "file", j.kept.path(session), "error", err)
		}
	}
}

// sweep forgets the sessions that are no longer wanted.
func (j *Journal) sweep() {
	if j.wanted == nil {
		return
	}
	for _, session := range j.kept.sessions() {
		if j.isClosing() {
			return
		}
		if !j.wants(session) {
			j.Forget(session)
		}
	}
}
