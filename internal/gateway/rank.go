package gateway

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/tine-mcp/tine/internal/wire"
)

const (
	// maxRanked is how much of a description counts, and maxRankedParams how many
	// parameters do.
	maxRanked       = 4 << 10
	maxRankedParams = 200
	maxQueryWords   = 16
	nameWeight      = 3 // of a word in a name, to one in a description
)

// rankTools orders the tools that have a word of the query in their name, description or
// parameter names, the best first, by BM25. Without a word in the query all of them
// stay in their order.
func rankTools(query string, tools [][]byte) []int {
	want := words(query)
	slices.Sort(want)
	want = slices.Compact(want)
	want = want[:min(len(want), maxQueryWords)]
	counts, lengths, mean := countWords(tools)
	scores := make([]float64, len(tools))
	for _, word := range want {
		hits, with := make([]float64, len(tools)), 0.0
		for i, count := range counts {
			if hits[i] = frequency(count, word); hits[i] > 0 {
				with++
			}
		}
		rare := math.Log(1 + (float64(len(tools))-with+0.5)/(with+0.5))
		for i, f := range hits {
			scores[i] += rare * f * 2.2 / (f + 1.2*(0.25+0.75*lengths[i]/mean))
		}
	}
	var found []int
	for i, tool := range tools {
		if wire.FindString(tool, "name") == query {
			scores[i] = math.Inf(1)
		}
		if scores[i] > 0 || len(want) == 0 {
			found = append(found, i)
		}
	}
	slices.SortStableFunc(found, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return found
}

// frequency is how often a word is among others, which count half where it is only
// their beginning.
func frequency(count map[string]float64, word string) float64 {
	f := count[word]
	if len(word) < 3 {
		return f
	}
	for other, n := range count {
		if len(other) > len(word) && strings.HasPrefix(other, word) {
			f += n / 2 // halves of whole numbers: the sum is the same in any order
		}
	}
	return f
}

// countWords counts the words of tools.
func countWords(tools [][]byte) (counts []map[string]float64, lengths []float64, mean float64) {
	for _, tool := range tools {
		count, length := make(map[string]float64), 0.0
		add := func(text string, weight float64) {
			for _, w := range words(text) {
				count[w] += weight
				length += weight
			}
		}
		text := wire.FindString(tool, "description")
		add(text[:min(len(text), maxRanked)], 1)
		add(wire.FindString(tool, "name"), nameWeight)
		add(wire.FindString(tool, "title"), 1)
		if props, err := wire.Find(tool, "inputSchema", "properties"); err == nil && props.Ok() {
			params := 0
			_ = wire.Members(props.Of(tool), func(name string, _ wire.Span) error {
				if params++; params <= maxRankedParams {
					add(name, 1)
				}
				return nil
			})
		}
		counts, lengths, mean = append(counts, count), append(lengths, length), mean+length
	}
	return counts, lengths, max(mean/float64(max(len(tools), 1)), 1)
}

// singular folds the plurals of English: issues and issue, entities and entity. What
// ends in ie has the same form, since cookies is a plural of that.
func singular(w string) string {
	if len(w) <= 3 || strings.HasSuffix(w, "ss") {
		return w
	}
	w = strings.TrimSuffix(w, "s")
	if stem, ok := strings.CutSuffix(w, "ie"); ok && len(w) > 3 {
		return stem + "y"
	}
	return w
}

// words takes a text apart, readFile and read_files into the same words. Scripts
// that are written without spaces have a word for each character.
func words(text string) (out []string) {
	start, last := -1, ' '
	end := func(at int) {
		if start >= 0 {
			out = append(out, singular(strings.ToLower(text[start:at])))
		}
		start = -1
	}
	for i, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end(i)
		case r >= 0x2e80:
			end(i)
			out = append(out, string(r))
		case start >= 0 && unicode.IsUpper(r) && unicode.IsLower(last):
			end(i)
			start = i
		case start < 0:
			start = i
		}
		last = r
	}
	end(len(text))
	return out
}
