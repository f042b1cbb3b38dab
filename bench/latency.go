package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// rover is a caller that goes from session to session and from server to
// server, and looks whether each knows its own mark.
type rover struct{ *crowd }

func (r rover) call(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	i := id % uint64(len(r.sessions))
	return r.find(ctx, r.sessions[i], r.marks[i], int(id%stateful))
}

func (r rover) close() {}

// ease is the part of what few sessions can take that is the same load for few
// and for many. Flat out each gets as much as it can take, which is not the same.
const ease = 0.5

// latency times calls that are spread over few sessions and over many, at the
// same rate, and then as fast as they go.
func (t *trials) latency(ctx context.Context) ([]reading, error) {
	many, err := t.many(ctx)
	if err != nil {
		return nil, err
	}
	few, err := t.gather(ctx, min(fewSessions, t.s.Sessions))
	if err != nil {
		return nil, err
	}
	defer few.gate.stop()
	sides := []*crowd{few, many}
	var eased, flat [][]*series // by number of callers, then by side
	for _, n := range t.s.Callers {
		var e, f []*series
		for _, c := range sides {
			name := fmt.Sprintf("%d sessions, %d at once", len(c.sessions), n)
			e = append(e, &series{name: name + ", same rate"})
			f = append(f, &series{name: name + ", flat out", flat: true})
		}
		eased, flat = append(eased, e), append(flat, f)
	}
	for round := range t.s.Rounds {
		for k, n := range t.s.Callers {
			// Each round has a rate of its own: what the machine can do now.
			rate, err := t.visit(ctx, sides, flat[k], round, n, 0)
			if err != nil {
				return nil, err
			}
			every := time.Duration(float64(n) / (rate * ease) * float64(time.Second))
			if _, err := t.visit(ctx, sides, eased[k], round, n, every); err != nil {
				return nil, err
			}
		}
	}
	return compared(append(eased, flat...)...), nil
}

// visit calls both sides, the one first and then the other, with a call of each
// caller every so often, and returns how many calls a second few sessions
// answered.
func (t *trials) visit(ctx context.Context, sides []*crowd, cells []*series, round, n int, every time.Duration) (rate float64, err error) {
	for i := range sides {
		i = (i + round) % len(sides)
		callers := slices.Repeat([]caller{rover{sides[i]}}, n)
		warm := pace(ctx, callers, every, t.s.Duration/5, t.s.MaxCalls, &sides[i].calls)
		l := pace(ctx, callers, every, t.s.Duration, t.s.MaxCalls, &sides[i].calls)
		if err := errors.Join(warm.first, l.first, ctx.Err()); err != nil {
			return 0, sides[i].gate.explain(err)
		}
		if len(l.latencies) == 0 {
			return 0, errors.New("no call was answered: the time was too short")
		}
		cells[i].now = l.latencies
		cells[i].endRound()
		if i == 0 {
			rate = float64(len(l.latencies)) / l.elapsed.Seconds()
		}
	}
	return rate, nil
}
