package main

import (
	"fmt"
	"slices"
)

// What Tine aims at, against httputil.ReverseProxy in the same run, and with
// everything on against everything off.
const (
	aimP50  = 1.25 // times the proxy's p50, at most
	aimRate = 0.8  // of the proxy's calls a second, at least
	aimFull = 1.15 // times the p50 with all off, at most
	aimAnon = 40e6 // bytes of anonymous memory, fewer than
)

// aim is one of them, judged.
type aim struct {
	Name   string  `json:"name"`
	Want   string  `json:"want"`
	Got    float64 `json:"got"`
	Judged bool    `json:"judged"` // false when the run did not measure it
	Met    bool    `json:"met"`
}

func (a aim) String() string {
	switch {
	case !a.Judged:
		return fmt.Sprintf("aim  %-48s %-8s not measured", a.Name, a.Want)
	case a.Met:
		return fmt.Sprintf("aim  %-48s %-8s met: %.3f", a.Name, a.Want, a.Got)
	default:
		return fmt.Sprintf("aim  %-48s %-8s MISSED: %.3f", a.Name, a.Want, a.Got)
	}
}

// judge holds every Tine row before an HTTP upstream against the proxy, at each
// number of callers, and all Tine rows against the limit on memory. A row with
// a failed call has no figures worth judging.
func judge(lines []line) []aim {
	var aims []aim
	anon := aim{Name: "anonymous memory in MB, all Tine rows", Want: fmt.Sprintf("< %.0f", aimAnon/1e6)}
	for _, era := range []string{legacyEra, statelessEra} {
		for _, name := range []string{rowTine, rowMerged} {
			p50 := aim{Name: era + "/" + name + " p50 against the proxy", Want: fmt.Sprintf("<= %.2f", aimP50)}
			rate := aim{Name: era + "/" + name + " calls/s against the proxy", Want: fmt.Sprintf(">= %.2f", aimRate)}
			failed := false
			for _, l := range lines {
				if l.Group != era || l.Name != name || l.Proxy.P50 == 0 && l.Failure == "" {
					continue
				}
				failed = failed || l.Failure != ""
				// The worst of all numbers of callers counts.
				p50.Got = max(p50.Got, l.Proxy.P50)
				if !rate.Judged || l.Proxy.Rate < rate.Got {
					rate.Got = l.Proxy.Rate
				}
				p50.Judged, rate.Judged = true, true
			}
			if failed {
				p50.Judged, rate.Judged = false, false
			}
			p50.Met = p50.Judged && p50.Got <= aimP50
			rate.Met = rate.Judged && rate.Got >= aimRate
			aims = append(aims, p50, rate)
		}
		aims = append(aims, judgeFull(era, lines))
	}
	for _, l := range lines {
		if (&row{Name: l.Name}).usesTine() && l.Anon > 0 {
			anon.Judged = true
			anon.Got = max(anon.Got, mb(l.Anon))
		}
	}
	anon.Met = anon.Judged && anon.Got < aimAnon/1e6
	return append(aims, anon)
}

// judgeFull holds the row with everything on against the one with all off.
func judgeFull(era string, lines []line) aim {
	full := aim{Name: era + "/" + rowFull + " p50 against " + rowOff, Want: fmt.Sprintf("<= %.2f", aimFull)}
	for _, l := range lines {
		if l.Group != era || l.Name != rowFull {
			continue
		}
		if l.Failure != "" {
			return aim{Name: full.Name, Want: full.Want}
		}
		if l.Off.P50 > 0 {
			full.Got, full.Judged = max(full.Got, l.Off.P50), true
		}
	}
	full.Met = full.Judged && full.Got <= aimFull
	return full
}

// met is whether every aim was judged and met.
func (r *report) met() bool {
	return !slices.ContainsFunc(r.Aims, func(a aim) bool { return !a.Met })
}
