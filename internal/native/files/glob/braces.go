package glob

import (
	"regexp"
	"strconv"
	"strings"
)

// Bounds on what braces may expand to.
const (
	maxAlternatives = 10_000
	maxExpanded     = 1 << 20 // bytes of all
	maxNesting      = 100
	maxStray        = 100 // closing braces of no group that are stepped over
)

var (
	expandable = regexp.MustCompile(`\{[^{\n\r\x{2028}\x{2029}]*\}`)
	numbers    = regexp.MustCompile(`^-?\d+\.\.-?\d+(\.\.-?\d+)?$`)
	letters    = regexp.MustCompile(`^[a-zA-Z]\.\.[a-zA-Z](\.\.-?\d+)?$`)
	padded     = regexp.MustCompile(`^-?0\d`)

	// Escaped syntax is out of the way while braces are expanded, and comes back
	// without its backslash.
	hide   = strings.NewReplacer(`\\`, "\U0010FFF0", `\{`, "\U0010FFF1", `\}`, hiddenClose, `\,`, "\U0010FFF3", `\.`, "\U0010FFF4")
	unhide = strings.NewReplacer("\U0010FFF0", `\`, "\U0010FFF1", "{", hiddenClose, "}", "\U0010FFF3", ",", "\U0010FFF4", ".")
)

const hiddenClose = "\U0010FFF2"

// braces expands {a,b} and {1..3} the way a shell does.
func braces(pattern string) ([]string, error) {
	if !expandable.MatchString(pattern) {
		return []string{pattern}, nil
	}
	// A shell leaves {} at the very beginning alone.
	if rest, ok := strings.CutPrefix(pattern, "{}"); ok {
		pattern = `\{\}` + rest
	}
	out, err := expand(hide.Replace(pattern), true, 0)
	for i, s := range out {
		out[i] = unhide.Replace(s)
	}
	return out, err
}

// expand works through the groups of s from left to right. At the top empty
// results are dropped, when the first group is one with commas.
func expand(s string, top bool, depth int) ([]string, error) {
	if depth > maxNesting {
		return []string{s}, nil
	}
	out := []string{""}
	var err error
	drop, first, stray := false, true, 0
	for {
		pre, body, post, ok := group(s)
		if !ok {
			return product(out, s, []string{""}, drop)
		}
		sequence := numbers.MatchString(body) || letters.MatchString(body)
		var values []string
		switch {
		case strings.HasSuffix(pre, "$"): // a shell's variable
			values = []string{"{" + body + "}"}
		case !sequence && !strings.Contains(body, ","):
			if stray++; stray > maxStray || !continues(post) {
				return product(out, s, []string{""}, drop)
			}
			// The brace closes nothing: the group goes on to a later one.
			s = pre + "{" + body + hiddenClose + post
			top = true
			continue
		case sequence:
			values, err = count(body)
		default:
			if first {
				drop = top
			}
			values, err = options(body, depth)
		}
		if err != nil {
			return nil, err
		}
		first = false
		if out, err = product(out, pre, values, drop && post == ""); err != nil || post == "" {
			return out, err
		}
		s = post
	}
}

// options expands each of the parts between the commas of a group.
func options(body string, depth int) ([]string, error) {
	parts := commaParts(body)
	if len(parts) == 1 {
		// {{a,b}} is {a} and {b}.
		values, err := expand(parts[0], false, depth+1)
		for i, v := range values {
			values[i] = "{" + v + "}"
		}
		return values, err
	}
	var values []string
	for _, p := range parts {
		more, err := expand(p, false, depth+1)
		if err != nil {
			return nil, err
		}
		if values = append(values, more...); len(values) > maxAlternatives {
			return nil, errMany
		}
	}
	return values, nil
}

// product appends pre and each value to each of out.
func product(out []string, pre string, values []string, drop bool) ([]string, error) {
	if len(out)*len(values) > maxAlternatives {
		return nil, errMany
	}
	all := make([]string, 0, len(out)*len(values))
	size := 0
	for _, o := range out {
		for _, v := range values {
			s := o + pre + v
			if drop && s == "" {
				continue
			}
			if size += len(s); size > maxExpanded {
				return nil, errMany
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// group finds the first {...} whose braces are balanced; where the first opening
// one is never closed, the leftmost that is.
func group(s string) (pre, body, post string, ok bool) {
	var open []int
	left, right := len(s), -1
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '{':
			open = append(open, i)
		case s[i] != '}' || len(open) == 0:
		case len(open) == 1:
			return s[:open[0]], s[open[0]+1 : i], s[i+1:], true
		default:
			last := open[len(open)-1]
			open = open[:len(open)-1]
			if last < left {
				left, right = last, i
			}
		}
	}
	if right < 0 {
		return "", "", "", false
	}
	return s[:left], s[left+1 : right], s[right+1:], true
}

// continues reports whether after a group without commas there are still a comma
// and a closing brace, as in {a},b}.
func continues(post string) bool {
	for i := 0; i < len(post); i++ {
		if post[i] != ',' || i+1 < len(post) && post[i+1] == ',' {
			continue
		}
		line, _, _ := strings.Cut(post[i+1:], "\n")
		if strings.Contains(line, "}") {
			return true
		}
	}
	return false
}

// commaParts cuts at the commas that are in no inner group.
func commaParts(s string) []string {
	var parts []string
	carry := ""
	for {
		pre, body, post, ok := group(s)
		if !ok {
			pre = s
		}
		cut := strings.Split(pre, ",")
		cut[0] = carry + cut[0]
		if !ok {
			return append(parts, cut...)
		}
		last := len(cut) - 1
		cut[last] += "{" + body + "}"
		if post == "" {
			return append(parts, cut...)
		}
		parts = append(parts, cut[:last]...)
		carry, s = cut[last], post
	}
}

// count expands 1..9..2 or a..e.
func count(body string) ([]string, error) {
	ends := strings.Split(body, "..")
	alpha := letters.MatchString(body)
	step := 1
	var bounds [2]int
	for i, e := range ends {
		n, err := strconv.Atoi(e)
		switch {
		case i < 2 && alpha:
			bounds[i] = int(e[0])
		case err != nil:
			return nil, errMany
		case i < 2:
			bounds[i] = n
		default:
			step = max(n, -n, 1)
		}
	}
	from, to := bounds[0], bounds[1]
	// Apart as unsigned numbers, since the ends may be as far apart as ints are.
	distance := uint64(to) - uint64(from)
	if to < from {
		distance = uint64(from) - uint64(to)
	}
	steps := distance / uint64(step)
	if steps >= maxAlternatives {
		return nil, errMany
	}
	if to < from {
		step = -step
	}
	width := 0
	for _, e := range ends {
		if !alpha && padded.MatchString(e) {
			width = max(len(ends[0]), len(ends[1]))
		}
	}
	out := make([]string, 0, steps+1)
	for i := range int(steps) + 1 {
		n := from + i*step
		switch {
		case alpha && n == '\\':
			out = append(out, "")
		case alpha:
			out = append(out, string(rune(n)))
		case n < 0 && width > 0:
			out = append(out, "-"+zeros(strconv.Itoa(-n), width-1))
		default:
			out = append(out, zeros(strconv.Itoa(n), width))
		}
	}
	return out, nil
}

func zeros(digits string, width int) string {
	return strings.Repeat("0", max(0, width-len(digits))) + digits
}
