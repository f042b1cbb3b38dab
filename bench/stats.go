package main

import (
	"slices"
	"time"
)

// percentile of sorted values, the nearest rank; zero of none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// median of values in any order; zero of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

// medianOf is the median over rounds of one figure.
func medianOf[S any](rounds []S, figure func(S) float64) float64 {
	v := make([]float64, len(rounds))
	for i, s := range rounds {
		v[i] = figure(s)
	}
	return median(v)
}

// medianRatio compares one figure of two rows round by round, because the two
// samples of one round saw the same machine. Zero where there is nothing to
// compare.
func medianRatio[S any](rounds, base []S, figure func(S) float64) float64 {
	var v []float64
	for i := range min(len(rounds), len(base)) {
		if b := figure(base[i]); b > 0 {
			v = append(v, figure(rounds[i])/b)
		}
	}
	return median(v)
}

func p50(s sample) float64  { return float64(s.P50) }
func p99(s sample) float64  { return float64(s.P99) }
func rate(s sample) float64 { return s.Rate }

// perCall spreads a sum over all calls of all rounds.
func perCall(rounds []sample, figure func(sample) time.Duration) time.Duration {
	var sum time.Duration
	calls := 0
	for _, s := range rounds {
		sum += figure(s)
		calls += s.Calls
	}
	if calls == 0 {
		return 0
	}
	return sum / time.Duration(calls)
}
