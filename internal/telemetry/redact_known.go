package telemetry

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/secret"
)

// minKnown is the shortest value that is masked wherever it stands.
const minKnown = 4

// knownValues finds exact values. Every needle has at least four bytes; a bit for
// the hash of its first four rejects nearly every place of a text in one step.
type knownValues struct {
	bits    [1 << 10]uint64
	byHead  map[uint32][]needle
	longest int
	spaces  bool // some value has a space, which a form writes as +
}

type needle struct {
	text   string
	base64 bool
}

func newKnownValues(secrets []string) *knownValues {
	k := &knownValues{byHead: make(map[uint32][]needle)}
	for _, s := range secrets {
		k.addValue(s)
		if strings.Contains(s, "\n") {
			// A log may show a single line of a key with several lines.
			for line := range strings.Lines(s) {
				if line = strings.TrimSpace(line); len(line) >= 16 && !strings.HasPrefix(line, "-----") {
					k.addValue(line)
				}
			}
		}
	}
	if len(k.byHead) == 0 {
		return nil
	}
	for _, list := range k.byHead {
		slices.SortFunc(list, func(a, b needle) int { return len(b.text) - len(a.text) })
	}
	return k
}

func (k *knownValues) addValue(s string) {
	if len(s) < minKnown || strings.Trim(s, "*") == "" {
		return
	}
	k.add(needle{text: s})
	k.spaces = k.spaces || strings.Contains(s, " ")
	for lead := range 3 {
		core := base64Core(s, lead)
		k.add(needle{core, true})
		k.add(needle{strings.NewReplacer("+", "-", "/", "_").Replace(core), true})
	}
}

func (k *knownValues) add(n needle) {
	if len(n.text) < minKnown {
		return
	}
	h := head(n.text)
	if slices.Contains(k.byHead[h], n) {
		return
	}
	k.byHead[h] = append(k.byHead[h], n)
	b := bucket(h)
	k.bits[b>>6] |= 1 << (b & 63)
	k.longest = max(k.longest, len(n.text))
}

// base64Core is the part of the base64 of a longer text that depends on s alone, if
// s begins lead bytes into a group of three.
func base64Core(s string, lead int) string {
	coded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", lead) + s))
	return coded[(8*lead+5)/6 : 8*(lead+len(s))/6]
}

func head(s string) uint32 {
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func bucket(h uint32) uint32 { return h * 0x9E3779B1 >> 16 }

// find adds the places of known values, plain or encoded.
func (k *knownValues) find(s string, cuts []cut) []cut {
	if k == nil {
		return cuts
	}
	cuts = k.scan(s, cuts)
	if k.encoded(s) == 0 {
		return cuts
	}
	// Encodings make up to some twenty bytes of one (%5C%75%30%30%34%31), so pieces
	// that overlap by that much of the longest value miss none.
	overlap := 20*k.longest + 64
	step := max(1<<16, overlap)
	for from := 0; ; from += step {
		to := min(from+step+overlap, len(s))
		cuts = k.findDecoded(plainView(s[from:to]), 0, from, cuts)
		if to == len(s) {
			return cuts
		}
	}
}

// scan adds every place of a needle.
func (k *knownValues) scan(s string, cuts []cut) []cut {
	if len(s) < minKnown {
		return cuts
	}
	h := head(s) << 8
	for i := 0; i+minKnown <= len(s); i++ {
		h = h>>8 | uint32(s[i+3])<<24
		b := bucket(h)
		if k.bits[b>>6]>>(b&63)&1 == 0 {
			continue
		}
		for _, n := range k.byHead[h] {
			if !strings.HasPrefix(s[i:], n.text) {
				continue
			}
			from, to := i, i+len(n.text)
			if n.base64 {
				// The characters beside hold bits of the value too.
				if from > 0 && secret.IsBase64(s[from-1]) {
					from--
				}
				if to < len(s) && secret.IsBase64(s[to]) {
					to++
				}
				for to < len(s) && s[to] == '=' {
					to++
				}
			}
			cuts = append(cuts, cut{from, to, mask})
			break // longest first; a shorter one at the same place lies within
		}
	}
	return cuts
}

// encoded says which decodings would change a text.
func (k *knownValues) encoded(s string) (ways decoding) {
	if strings.IndexByte(s, '\\') >= 0 {
		ways |= escapes
	}
	if strings.IndexByte(s, '%') >= 0 {
		ways |= percents
	}
	if k.spaces && strings.IndexByte(s, '+') >= 0 {
		ways |= pluses
	}
	return ways
}

// findDecoded looks at a piece under every order of decodings, three deep: a value
// may stand in JSON in a string of JSON, or in a URL in either.
func (k *knownValues) findDecoded(v view, deep, base int, cuts []cut) []cut {
	ways := k.encoded(v.text)
	for _, way := range []decoding{escapes, percents, pluses} {
		if ways&way == 0 {
			continue
		}
		next := v.decode(way)
		if len(next.text) == len(v.text) && next.text == v.text {
			continue
		}
		first := len(cuts)
		cuts = k.scan(next.text, cuts)
		for i := first; i < len(cuts); i++ {
			from, to := next.place(cuts[i].from, cuts[i].to)
			cuts[i] = cut{base + from, base + to, mask}
		}
		if deep < 2 {
			cuts = k.findDecoded(next, deep+1, base, cuts)
		}
	}
	return cuts
}
