package patch

import "slices"

// maxEdits bounds the search for the shortest way from one text to another:
// its memory and time grow with the square of the lines that differ.
const maxEdits = 2000

// A run is a number of lines that are in both texts, or in one.
type run struct {
	kind  byte // ' ', '-' or '+'
	lines []string
}

// diff returns the runs that lead from old to new. Where it would take more than
// maxEdits changed lines, all between the first and the last change is replaced
// as one.
func diff(old, new []string) []run {
	a, b := number(old, new)
	path, ok := shortest(a, b)
	if !ok {
		path = whole(a, b)
	}
	var runs []run
	for i, kind := range path {
		if i > 0 && kind == path[i-1] {
			continue
		}
		n := slices.IndexFunc(path[i:], func(k byte) bool { return k != kind })
		if n < 0 {
			n = len(path) - i
		}
		if kind == '+' {
			runs = append(runs, run{kind, new[:n]})
		} else {
			runs = append(runs, run{kind, old[:n]})
			old = old[n:]
		}
		if kind != '-' {
			new = new[n:]
		}
	}
	return runs
}

// number gives equal lines equal numbers, which compare faster.
func number(old, new []string) (a, b []int32) {
	known := make(map[string]int32, len(old))
	of := func(lines []string) []int32 {
		out := make([]int32, len(lines))
		for i, l := range lines {
			n, ok := known[l]
			if !ok {
				n = int32(len(known))
				known[l] = n
			}
			out[i] = n
		}
		return out
	}
	return of(old), of(new)
}

// unreached marks a diagonal that no path is on. On the others stands how many
// old lines the furthest path there has behind it.
const unreached = -1

// shortest is Myers' greedy search. A diagonal is the number of removals less
// that of insertions. Of two paths that come to the same diagonal the one with
// more old lines behind it goes on; at a tie, the one that removes.
func shortest(a, b []int32) ([]byte, bool) {
	common := func(x, diagonal int32) int32 {
		for x < int32(len(a)) && x-diagonal < int32(len(b)) && a[x] == b[x-diagonal] {
			x++
		}
		return x
	}
	rounds := []round{{low: 0, reach: []int32{common(0, 0)}}}
	if rounds[0].reach[0] == int32(len(a)) && len(a) == len(b) {
		return slices.Repeat([]byte{' '}, len(a)), true
	}
	// A path at the end of one text can only go on along it, so diagonals beyond
	// it lead nowhere.
	low, high := int32(-maxEdits), int32(maxEdits)
	for d := int32(1); d <= maxEdits; d++ {
		from, to := max(low, -d), min(high, d)
		r := round{low: from, reach: make([]int32, 0, max(0, (to-from)/2+1))}
		for k := from; k <= to; k += 2 {
			x := rounds[d-1].step(k, int32(len(a)), int32(len(b)))
			if x != unreached {
				x = common(x, k)
			}
			r.reach = append(r.reach, x)
			if x == unreached {
				continue
			}
			if x == int32(len(a)) && x-k == int32(len(b)) {
				return trace(append(rounds, r), k, int32(len(a)), int32(len(b))), true
			}
			if x == int32(len(a)) {
				high = min(high, k-1)
			}
			if x-k == int32(len(b)) {
				low = max(low, k+1)
			}
		}
		rounds = append(rounds, r)
	}
	return nil, false
}

// A round is how far one gets with a number of edits, on every second diagonal
// from low.
type round struct {
	low   int32
	reach []int32
}

func (r round) at(diagonal int32) int32 {
	i := diagonal - r.low
	if i < 0 || i%2 != 0 || int(i/2) >= len(r.reach) {
		return unreached
	}
	return r.reach[i/2]
}

// step returns where one more edit leads on a diagonal.
func (r round) step(k, lenA, lenB int32) int32 {
	x, _ := r.choose(k, lenA, lenB)
	return x
}

func (r round) choose(k, lenA, lenB int32) (x int32, insert bool) {
	removal, insertion := r.at(k-1), r.at(k+1)
	canInsert := insertion != unreached && insertion-k-1 >= 0 && insertion-k <= lenB
	canRemove := removal != unreached && removal < lenA
	switch {
	case !canInsert && !canRemove:
		return unreached, false
	case !canRemove || canInsert && removal < insertion:
		return insertion, true
	}
	return removal + 1, false
}

// trace walks back from the end of the last round.
func trace(rounds []round, k, lenA, lenB int32) []byte {
	var path []byte
	for d := len(rounds) - 1; d > 0; d-- {
		x := rounds[d].at(k)
		start, insert := rounds[d-1].choose(k, lenA, lenB)
		path = append(path, slices.Repeat([]byte{' '}, int(x-start))...)
		if insert {
			path = append(path, '+')
			k++
		} else {
			path = append(path, '-')
			k--
		}
	}
	path = append(path, slices.Repeat([]byte{' '}, int(rounds[0].reach[0]))...)
	slices.Reverse(path)
	return path
}

// whole keeps what both begin and end with.
func whole(a, b []int32) []byte {
	front := 0
	for front < len(a) && front < len(b) && a[front] == b[front] {
		front++
	}
	back := 0
	for back < len(a)-front && back < len(b)-front && a[len(a)-1-back] == b[len(b)-1-back] {
		back++
	}
	return slices.Concat(
		slices.Repeat([]byte{' '}, front),
		slices.Repeat([]byte{'-'}, len(a)-front-back),
		slices.Repeat([]byte{'+'}, len(b)-front-back),
		slices.Repeat([]byte{' '}, back),
	)
}
