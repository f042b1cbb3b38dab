package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// What Tine aims at with sessions.
const (
	aimQuick  = 2   // ms of an open or a fork, fewer than
	aimSame   = 1.2 // times what it is compared with, at most: as good as the same
	aimCopied = 1.1 // times copy plus start, at most
	aimMemory = 1e9 // bytes of anonymous memory, fewer than
)

// reading is one case of a row about sessions.
type reading struct {
	Row   string `json:"row"`
	About string `json:"about"`
	Case  string `json:"case"`
	// Use is whether the first use of what was made is in the times.
	Use bool `json:"first_use,omitempty"`
	// Flat is whether it was called as fast as it goes, for which there is no aim.
	Flat bool `json:"flat_out,omitempty"`

	// Server is which one of several the row has.
	Server string `json:"server,omitempty"`

	P50 time.Duration `json:"p50_ns,omitempty"`
	P95 time.Duration `json:"p95_ns,omitempty"`
	P99 time.Duration `json:"p99_ns,omitempty"`
	// Ratio is against the case it is compared with, round by round; zero where
	// it is that case itself.
	Ratio    timeRatios `json:"ratio"`
	Anon     int64      `json:"anon_bytes,omitempty"`
	Sessions int        `json:"sessions,omitempty"`          // that the memory is of
	Each     int64      `json:"bytes_per_session,omitempty"` // less what the gateway had without them
	PSS      int64      `json:"pss_bytes,omitempty"`         // of all processes of a sandbox
	Own      int64      `json:"own_bytes,omitempty"`         // of it, without files, which many have together
	Fit      int        `json:"fit_in_12_gb,omitempty"`      // how many such, worked out from those
	Room     int64      `json:"bytes_of_150,omitempty"`      // what so many take, worked out or measured
	CPU      float64    `json:"share_of_a_core,omitempty"`
	Parked   bool       `json:"parked,omitempty"`
	// Of kernels: against a bare Python, and against those of Jupyter.
	Over      time.Duration `json:"over_bare_ns,omitempty"`
	Peer      timeRatios    `json:"against_jupyter,omitzero"`
	Lighter   float64       `json:"memory_against_jupyter,omitempty"`
	Total     time.Duration `json:"total_ns,omitempty"`
	OwnBefore int64         `json:"own_bytes_before,omitempty"`
	Grown     int64         `json:"program_grown_bytes,omitempty"` // by the program alone, without its sandbox
	Failure   string        `json:"failure,omitempty"`
	Rounds    []timing      `json:"rounds,omitempty"`

	shows shows
}

// shows is which figures of a reading the table has.
type shows int

const (
	showsTimes   shows = iota
	showsTail          // p99 in place of p95
	showsAnon          // of the gateway
	showsHeld          // PSS
	showsShare         // of a core
	showsExec          // of kernels, with p99
	showsAgainst       // of kernels
	showsGrowth        // in many execs
	showsCrowd         // of many kernels
	showsRate          // of runs
	showsBegun         // of a run's program
	showsAgents        // of many agents
)

type timeRatios struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99,omitempty"`
}

// timing is what one case took in one round.
type timing struct {
	N   int           `json:"n"`
	P50 time.Duration `json:"p50_ns"`
	P95 time.Duration `json:"p95_ns"`
	P99 time.Duration `json:"p99_ns"`
}

func timingP50(t timing) float64 { return float64(t.P50) }
func timingP95(t timing) float64 { return float64(t.P95) }
func timingP99(t timing) float64 { return float64(t.P99) }

// series is the times of one case, round by round.
type series struct {
	name   string
	server string // and use and flat, as in reading
	use    bool
	flat   bool
	now    []time.Duration // of the round under way
	rounds []timing
}

func (s *series) add(d time.Duration) { s.now = append(s.now, d) }

func (s *series) endRound() {
	slices.Sort(s.now)
	s.rounds = append(s.rounds, timing{N: len(s.now), P50: percentile(s.now, 50), P95: percentile(s.now, 95), P99: percentile(s.now, 99)})
	s.now = nil
}

// against makes the reading, compared with another case unless that is nil.
func (s *series) against(base *series) reading {
	r := reading{
		Case: s.name, Server: s.server, Use: s.use, Flat: s.flat, Rounds: s.rounds,
		P50: time.Duration(medianOf(s.rounds, timingP50)),
		P95: time.Duration(medianOf(s.rounds, timingP95)),
		P99: time.Duration(medianOf(s.rounds, timingP99)),
	}
	if base != nil && base != s {
		r.Ratio = timeRatios{
			P50: medianRatio(s.rounds, base.rounds, timingP50), P95: medianRatio(s.rounds, base.rounds, timingP95), P99: medianRatio(s.rounds, base.rounds, timingP99),
		}
	}
	return r
}

// limit is what one figure of a row may be at most, in its worst case.
type limit struct {
	name  string
	most  float64
	under bool // and not the same
	of    func(reading) float64
}

func requestP50(r reading) float64 {
	if r.Use {
		return 0
	}
	return ms(r.P50)
}

func ratioP50(r reading) float64 {
	if r.Flat {
		return 0
	}
	return r.Ratio.P50
}

func ratioP95(r reading) float64 {
	if r.Flat {
		return 0
	}
	return r.Ratio.P95
}

func anonMB(r reading) float64 { return mb(r.Anon) }

// judge holds the readings of a row against the limit. Cases without the figure
// have no say, and with one that failed there is nothing to judge.
func (l limit) judge(row string, readings []reading) aim {
	op := "<="
	if l.under {
		op = "<"
	}
	a := aim{Name: row + " " + l.name, Want: fmt.Sprintf("%s %.4g", op, l.most)}
	for _, r := range readings {
		if r.Failure != "" {
			return aim{Name: a.Name, Want: a.Want}
		}
		if v := l.of(r); v > 0 {
			a.Got, a.Judged = max(a.Got, v), true
		}
	}
	a.Met = a.Judged && (a.Got < l.most || !l.under && a.Got == l.most)
	return a
}

// heads are the columns of a table, and cells what a case has in them.
var heads = map[shows]string{
	showsTimes: "p50 ms\tp95 ms\tp50 ratio\tp95 ratio",
	showsTail:  "p50 ms\tp99 ms\tp50 ratio\tp99 ratio",
	showsAnon:  "anon MB\tKB each",
	showsHeld:  "PSS MB\town MB\tin 12 GB",
	showsShare: "% of a core\tratio",

	showsExec:    "p50 ms\tp99 ms\tms over bare\tp50/bare\tp50/jupyter\tp99/jupyter",
	showsAgainst: "p50 ms\tp50/bare\tp50/jupyter",
	showsGrowth:  "total s\tMB before\tMB after\tprogram grown KB\ttotal/jupyter",
	showsRate:    "ms each\ta second\tms over bare\tratio",
	showsBegun:   "p50 ms\tp95 ms\tms over bare\tp50/bare",
	showsAgents:  "total s\ta second\tanon MB, the most\tKB each, after",
	showsCrowd:   "total s\tPSS MB each\town MB each\ttotal/jupyter\tPSS/jupyter",
}

func (r *reading) cells() string {
	tail, tailRatio := r.P95, r.Ratio.P95
	switch r.shows {
	case showsAnon:
		return unlessZero("%.1f", mb(r.Anon)) + "\t" + unlessZero("%.1f", float64(r.Each)/1e3)
	case showsHeld:
		return unlessZero("%.1f", mb(r.PSS)) + "\t" + unlessZero("%.1f", mb(r.Own)) + "\t" + unlessZero("%.0f", float64(r.Fit))
	case showsShare:
		return fmt.Sprintf("%.2f", r.CPU*100) + "\t" + unlessZero("%.4f", r.Ratio.P50)
	case showsExec:
		return fmt.Sprintf("%.3f\t%.3f\t", ms(r.P50), ms(r.P99)) + unlessZero("%.3f", ms(r.Over)) + "\t" + unlessZero("%.1f", r.Ratio.P50) + "\t" +
			unlessZero("%.2f", r.Peer.P50) + "\t" + unlessZero("%.2f", r.Peer.P99)
	case showsAgainst:
		return fmt.Sprintf("%.1f\t", ms(r.P50)) + unlessZero("%.2f", r.Ratio.P50) + "\t" + unlessZero("%.2f", r.Peer.P50)
	case showsGrowth:
		return fmt.Sprintf("%.2f\t%.1f\t%.1f\t%.0f\t", r.Total.Seconds(), mb(r.OwnBefore), mb(r.Own), float64(r.Grown)/1e3) + unlessZero("%.2f", r.Peer.P50)
	case showsCrowd:
		return fmt.Sprintf("%.2f\t%.1f\t%.1f\t", r.Total.Seconds(), mb(r.PSS), mb(r.Own)) + unlessZero("%.2f", r.Peer.P50) + "\t" + unlessZero("%.2f", r.Lighter)
	case showsRate:
		return fmt.Sprintf("%.2f\t%.0f\t", ms(r.P50), 1/r.P50.Seconds()) + unlessZero("%.2f", ms(r.Over)) + "\t" + unlessZero("%.1f", r.Ratio.P50)
	case showsBegun:
		return fmt.Sprintf("%.2f\t%.2f\t", ms(r.P50), ms(r.P95)) + unlessZero("%.2f", ms(r.Over)) + "\t" + unlessZero("%.1f", r.Ratio.P50)
	case showsAgents:
		return fmt.Sprintf("%.2f\t%.0f\t", r.Total.Seconds(), float64(r.Sessions)/r.Total.Seconds()) + unlessZero("%.1f", mb(r.Anon)) + "\t" + unlessZero("%.1f", float64(r.Each)/1e3)
	case showsTail:
		tail, tailRatio = r.P99, r.Ratio.P99
	}
	return unlessZero("%.3f", ms(r.P50)) + "\t" + unlessZero("%.3f", ms(tail)) + "\t" +
		unlessZero("%.2f", r.Ratio.P50) + "\t" + unlessZero("%.2f", tailRatio)
}

// writeReadings prints a table for each row.
func writeReadings(w io.Writer, readings []reading) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, r := range readings {
		if i == 0 || readings[i-1].Row != r.Row {
			// A line without tabs ends the columns of the row before.
			fmt.Fprintf(tw, "\n%s: %s\n%s\t%s\t\n", r.Row, r.About, wide(""), heads[r.shows])
		}
		fmt.Fprintf(tw, "%s\t%s\t\n", wide(r.Case), r.cells())
	}
	return tw.Flush()
}

func wide(s string) string { return fmt.Sprintf("%-42s", s) }
