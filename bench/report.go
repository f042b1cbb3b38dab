package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report is the outcome of a run.
type report struct {
	Started  time.Time     `json:"started"`
	Took     time.Duration `json:"took_ns"`
	Platform string        `json:"platform"`
	CPUs     int           `json:"cpus"`
	Duration time.Duration `json:"duration_ns"`
	Rounds   int           `json:"rounds"`
	Payload  int           `json:"payload_bytes"`
	Notes    []string      `json:"notes,omitempty"`
	Lines    []line        `json:"rows"`
	Readings []reading     `json:"sessions"`
	Aims     []aim         `json:"aims"`
}

// line is one cell of the report: medians over the rounds, except that
// processor time is over all calls and memory is the most that was seen.
type line struct {
	Group    string        `json:"group"`
	Name     string        `json:"name"`
	About    string        `json:"about"`
	Callers  int           `json:"callers"`
	Calls    int           `json:"calls"`
	Errors   int           `json:"errors"`
	Failure  string        `json:"failure,omitempty"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	Rate     float64       `json:"calls_per_s"`
	CPU      time.Duration `json:"cpu_ns_per_call"`
	Upstream time.Duration `json:"upstream_cpu_ns_per_call"`
	Anon     int64         `json:"anon_bytes"`
	Dials    int           `json:"dials"`
	Proxy    ratios        `json:"against_proxy"`
	Direct   ratios        `json:"against_direct"`
	Off      ratios        `json:"against_tine_off"`
	Samples  []sample      `json:"samples"`
}

// ratios are zero where there is nothing to compare with.
type ratios struct {
	P50  float64 `json:"p50"`
	Rate float64 `json:"calls_per_s"`
}

// summarize makes a report of the rows before the echo server.
func summarize(s settings, cells []*cell) *report {
	rep := &report{
		Platform: runtime.GOOS + "/" + runtime.GOARCH + " " + runtime.Version(),
		CPUs:     runtime.NumCPU(),
		Duration: s.Duration,
		Rounds:   s.Rounds,
		Payload:  s.Payload,
	}
	for _, c := range cells {
		l := line{
			Group:    c.row.Group,
			Name:     c.row.Name,
			About:    c.row.About,
			Callers:  c.callers,
			P50:      time.Duration(medianOf(c.rounds, p50)),
			P99:      time.Duration(medianOf(c.rounds, p99)),
			Rate:     medianOf(c.rounds, rate),
			CPU:      perCall(c.rounds, func(s sample) time.Duration { return s.CPU }),
			Upstream: perCall(c.rounds, func(s sample) time.Duration { return s.Upstream }),
			Proxy:    against(cells, c, rowProxy),
			Direct:   against(cells, c, rowDirect),
			Off:      against(cells, c, rowOff),
			Samples:  c.rounds,
		}
		for _, r := range c.rounds {
			l.Calls += r.Calls
			l.Errors += r.Errors
			l.Dials += r.Dials
			l.Anon = max(l.Anon, r.Anon)
			if l.Failure == "" && r.First != nil {
				l.Failure = r.First.Error()
			}
		}
		if c.err != nil {
			l.Failure = c.err.Error()
		}
		rep.Lines = append(rep.Lines, l)
	}
	return rep
}

// against compares a cell with the row of that name in its group.
func against(cells []*cell, c *cell, name string) ratios {
	i := slices.IndexFunc(cells, func(o *cell) bool {
		return o.row.Group == c.row.Group && o.row.Name == name && o.callers == c.callers
	})
	if i < 0 || cells[i] == c {
		return ratios{}
	}
	base := cells[i].rounds
	return ratios{P50: medianRatio(c.rounds, base, p50), Rate: medianRatio(c.rounds, base, rate)}
}

// failed is whether any call got a wrong answer or none.
func (r *report) failed() bool {
	return slices.ContainsFunc(r.Lines, func(l line) bool { return l.Failure != "" }) ||
		slices.ContainsFunc(r.Readings, func(r reading) bool { return r.Failure != "" })
}

func writeJSON(w io.Writer, rep *report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rep)
}

func writeTable(w io.Writer, rep *report) error {
	fmt.Fprintf(w, "%s, %d CPUs; %d rounds of %v a cell, %d bytes of text; %.0f s in all\n",
		rep.Platform, rep.CPUs, rep.Rounds, rep.Duration, rep.Payload, rep.Took.Seconds())
	for _, n := range rep.Notes {
		fmt.Fprintln(w, n)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, l := range rep.Lines {
		if i == 0 || rep.Lines[i-1].Group != l.Group || rep.Lines[i-1].Callers != l.Callers {
			fmt.Fprintf(tw, "\n%s\tp50 ms\tp99 ms\tcalls/s\tCPU us\techo CPU us\tanon MB\tdials\tp50/proxy\trate/proxy\tp50/direct\trate/direct\terrors\t\n",
				leftAlign(fmt.Sprintf("%s, %d at once", l.Group, l.Callers)))
		}
		fmt.Fprintf(tw, "%s\t%.3f\t%.3f\t%.0f\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t\n", leftAlign(l.Name),
			ms(l.P50), ms(l.P99), l.Rate,
			unlessZero("%.0f", us(l.CPU)), unlessZero("%.0f", us(l.Upstream)), unlessZero("%.1f", mb(l.Anon)), l.Dials,
			unlessZero("%.2f", l.Proxy.P50), unlessZero("%.2f", l.Proxy.Rate),
			unlessZero("%.2f", l.Direct.P50), unlessZero("%.2f", l.Direct.Rate), l.Errors)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if err := writeReadings(w, rep.Readings); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, r := range rep.Readings {
		if r.Failure != "" {
			fmt.Fprintf(w, "FAILED %s: %s\n", r.Row, r.Failure)
		}
	}
	for _, l := range rep.Lines {
		if l.Failure != "" {
			fmt.Fprintf(w, "FAILED %s/%s at %d: %s\n", l.Group, l.Name, l.Callers, l.Failure)
		}
	}
	for _, a := range rep.Aims {
		if _, err := fmt.Fprintln(w, a); err != nil {
			return err
		}
	}
	return nil
}

// leftAlign fills the first column, the only one that is text.
func leftAlign(s string) string { return fmt.Sprintf("%-24s", s) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func mb(n int64) float64         { return float64(n) / 1e6 }

func unlessZero(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}
