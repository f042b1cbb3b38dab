package main

import (
	"cmp"
	"slices"
	"strings"
)

// didYouMean is a clause for an error message that suggests similar names, or
// empty.
func didYouMean(name string, known []string) string {
	near := nearest(name, known, 3)
	if len(near) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(near, " or ") + "?)"
}

// nearest returns at most n of the known names that name may have been meant for,
// the best first: those it is a part of, and those few edits away.
func nearest(name string, known []string, n int) []string {
	type candidate struct {
		name string
		cost int
	}
	var found []candidate
	low := strings.ToLower(name)
	for _, k := range known {
		lk := strings.ToLower(k)
		cost := distance(low, lk)
		// One edit in three characters is a slip, more is another word.
		if cost > max(1, len(low)/3) {
			if len(low) < 3 || !strings.Contains(lk, low) {
				continue
			}
			cost += len(low) // a part of a longer name comes after the slips
		}
		found = append(found, candidate{k, cost})
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.name, b.name))
	})
	var out []string
	for _, f := range found[:min(n, len(found))] {
		out = append(out, f.name)
	}
	return out
}

// distance counts the bytes to insert, delete, replace or swap with their
// neighbour to get from a to b.
func distance(a, b string) int {
	const far = 1 << 20
	if len(a) > 256 || len(b) > 256 {
		return far // no name is that long, and the table would be
	}
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
