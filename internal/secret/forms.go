// Package secret tells what looks like a secret: a text by its form, such as a private
// key, a JWT or a token of a known service, and a value by the name that it stands
// under. Secrets that are known by their value are the business of others.
package secret

import (
	"slices"
	"strings"
)

// Mask stands where a secret was.
const Mask = "****"

// Span is a piece of a text, in bytes.
type Span struct{ From, To int }

// Masked is a text with what looks like a secret masked.
func Masked(s string) string {
	found := Find(s)
	if len(found) == 0 {
		return s
	}
	var b strings.Builder
	at := 0
	for _, f := range Joined(found) {
		b.WriteString(s[at:f.From])
		b.WriteString(Mask)
		at = f.To
	}
	return b.String() + s[at:]
}

// Joined are the pieces in order, those that overlap or touch as one.
func Joined(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return a.From - b.From })
	var all []Span
	for _, s := range spans {
		if n := len(all); n > 0 && s.From <= all[n-1].To {
			all[n-1].To = max(all[n-1].To, s.To)
			continue
		}
		all = append(all, s)
	}
	return all
}

// anchor is a piece of text near which a secret may stand. look is called with its
// place, adds what is to be masked, and says where to go on.
type anchor struct {
	text string
	any  bool // in any case
	look func(f *patternFinder, at int) (next int)
}

type patternFinder struct {
	s     string
	found []Span

	runEnd, jwtEnd, lastDot int // of the run that lookJWT saw last
}

func (f *patternFinder) cut(from, to int) int {
	f.found = append(f.found, Span{from, to})
	return to
}

// anchorTable leads from three characters, folded to five bits each, to the
// anchors that begin so; nearly every place of an innocent text leads to none.
type anchorTable struct {
	slots [1 << 15]uint8
	lists [][]anchor
}

var (
	fold    = foldTable()
	anchors = newAnchorTable()
)

func foldTable() (t [256]uint8) {
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-32] = uint8(c-'a'+1), uint8(c-'a'+1)
	}
	for i, c := range "-_:/." {
		t[c] = uint8(27 + i)
	}
	return t
}

func newAnchorTable() *anchorTable {
	t := &anchorTable{lists: make([][]anchor, 1)}
	add := func(a anchor) {
		i := uint32(fold[a.text[0]])<<10 | uint32(fold[a.text[1]])<<5 | uint32(fold[a.text[2]])
		if t.slots[i] == 0 {
			t.lists = append(t.lists, nil)
			t.slots[i] = uint8(len(t.lists) - 1)
		}
		t.lists[t.slots[i]] = append(t.lists[t.slots[i]], a)
	}
	for _, f := range credentialForms {
		add(anchor{text: f.prefix, look: f.look})
	}
	add(anchor{text: "eyJ", look: lookJWT})
	add(anchor{text: "://", look: lookURL})
	add(anchor{"-----begin", true, lookPEM})
	add(anchor{"bearer", true, lookBearer})
	add(anchor{"basic", true, lookBasic})
	for _, w := range strings.Fields("passw passphrase passcode pass pwd secret token key auth cookie cred bearer jwt dsn otp pat sig code") {
		add(anchor{w, true, lookPair})
	}
	return t
}

// Find lists the parts of s that look like a secret, in no order.
func Find(s string) []Span {
	if len(s) < 3 {
		return nil
	}
	var f *patternFinder // made when it is needed, which it mostly is not
	t := anchors
	w := uint32(fold[s[0]])<<5 | uint32(fold[s[1]])
	for i := 2; i < len(s); {
		w = (w<<5 | uint32(fold[s[i]])) & (1<<15 - 1)
		slot := t.slots[w]
		i++
		if slot == 0 {
			continue
		}
		at := i - 3
		next := at
		for _, a := range t.lists[slot] {
			if a.matches(s[at:]) {
				if f == nil {
					f = &patternFinder{s: s}
				}
				next = max(next, a.look(f, at))
			}
		}
		if next > at+1 {
			if i = next + 2; i > len(s) {
				break
			}
			w = uint32(fold[s[next]])<<5 | uint32(fold[s[next+1]])
		}
	}
	if f == nil {
		return nil
	}
	return f.found
}

func (a *anchor) matches(s string) bool {
	if len(s) < len(a.text) {
		return false
	}
	if a.any {
		return strings.EqualFold(s[:len(a.text)], a.text)
	}
	return s[:len(a.text)] == a.text
}

// credentialForm is a credential that is recognized by its prefix.
type credentialForm struct {
	prefix string
	rest   string // characters that follow beside letters and digits
	least  int    // how many must follow
	apart  bool   // no letter or digit may stand before, since the prefix is short
	digit  bool   // a digit must be among them, since words begin so too
}

var credentialForms = []credentialForm{
	{prefix: "sk-", rest: "-_", least: 8, apart: true, digit: true},
	{prefix: "sk_live_", least: 8}, {prefix: "sk_test_", least: 8}, {prefix: "rk_live_", least: 8}, {prefix: "rk_test_", least: 8},
	{prefix: "whsec_", rest: "+/=", least: 12},
	{prefix: "ghp_", least: 10}, {prefix: "gho_", least: 10}, {prefix: "ghu_", least: 10}, {prefix: "ghs_", least: 10}, {prefix: "ghr_", least: 10},
	{prefix: "github_pat_", rest: "_", least: 10},
	{prefix: "glpat-", rest: "-_.", least: 8}, {prefix: "gldt-", rest: "-_", least: 12}, {prefix: "glrt-", rest: "-_.", least: 12},
	{prefix: "xoxa-", rest: "-", least: 8}, {prefix: "xoxb-", rest: "-", least: 8}, {prefix: "xoxc-", rest: "-", least: 8},
	{prefix: "xoxd-", rest: "-%", least: 8}, {prefix: "xoxe-", rest: "-", least: 8}, {prefix: "xoxe.", rest: "-.", least: 8},
	{prefix: "xoxo-", rest: "-", least: 8}, {prefix: "xoxp-", rest: "-", least: 8}, {prefix: "xoxr-", rest: "-", least: 8},
	{prefix: "xoxs-", rest: "-", least: 8}, {prefix: "xapp-", rest: "-", least: 8},
	{prefix: "AKIA", least: 12, apart: true, digit: true}, {prefix: "ASIA", least: 12, apart: true, digit: true},
	{prefix: "AIza", rest: "-_", least: 20},
	{prefix: "ya29.", rest: "-_.", least: 10},
	{prefix: "hf_", least: 20, apart: true}, {prefix: "npm_", least: 30, apart: true},
	{prefix: "pypi-", rest: "-_", least: 30, apart: true},
	{prefix: "SG.", rest: "-_.", least: 30, apart: true},
	{prefix: "tine_", rest: "-_", least: 40, apart: true}, // our own
	{prefix: "dop_v1_", least: 20}, {prefix: "doo_v1_", least: 20}, {prefix: "dor_v1_", least: 20},
	{prefix: "shpat_", least: 16}, {prefix: "shpss_", least: 16}, {prefix: "shpca_", least: 16}, {prefix: "shppa_", least: 16},
	{prefix: "glptt-", rest: "-_.", least: 12}, {prefix: "glft-", rest: "-_.", least: 12}, {prefix: "glsoat-", rest: "-_.", least: 12},
	{prefix: "glimt-", rest: "-_.", least: 12}, {prefix: "glagent-", rest: "-_.", least: 12}, {prefix: "glcbt-", rest: "-_.", least: 12},
	{prefix: "glsa_", rest: "_", least: 30}, {prefix: "glc_", rest: "+/=", least: 30, apart: true},
	{prefix: "AGE-SECRET-KEY-1", least: 30}, {prefix: "ATATT3", rest: "-_=", least: 60}, {prefix: "PMAK-", rest: "-", least: 30},
	{prefix: "NRAK-", least: 20}, {prefix: "LTAI", least: 16, apart: true, digit: true}, {prefix: "ABIA", least: 12, apart: true, digit: true},
	{prefix: "ops_eyJ", rest: "+/=-_", least: 60}, {prefix: "dapi", rest: "-", least: 32, apart: true, digit: true}, {prefix: "dp.pt.", least: 30, apart: true},
	{prefix: "hvs.", rest: "-_", least: 24, apart: true}, {prefix: "hvb.", rest: "-_", least: 24, apart: true},
	{prefix: "lin_api_", least: 30}, {prefix: "figd_", rest: "-_", least: 30}, {prefix: "gsk_", least: 40, apart: true},
	{prefix: "pplx-", least: 40, apart: true}, {prefix: "xai-", least: 60, apart: true}, {prefix: "r8_", least: 30, apart: true},
	{prefix: "api_org_", least: 30}, {prefix: "pul-", least: 40, apart: true}, {prefix: "rubygems_", least: 40}, {prefix: "sntrys_", rest: "+/=_", least: 40},
	{prefix: "sntryu_", least: 40}, {prefix: "tskey-", rest: "-", least: 16}, {prefix: "xkeysib-", rest: "-", least: 40}, {prefix: "sbp_", least: 30, apart: true},
	{prefix: "sq0atp-", rest: "-_", least: 20}, {prefix: "sq0csp-", rest: "-_", least: 40},
	{prefix: "pscale_tkn_", rest: "-_.=", least: 30}, {prefix: "pscale_pw_", rest: "-_.=", least: 30}, {prefix: "pscale_oauth_", rest: "-_.=", least: 30},
	// Whoever has the URL of a webhook may post to it.
	{prefix: "hooks.slack.com/services/", rest: "/", least: 20}, {prefix: "hooks.slack.com/workflows/", rest: "/", least: 20},
	{prefix: "discord.com/api/webhooks/", rest: "/-_", least: 40}, {prefix: "discordapp.com/api/webhooks/", rest: "/-_", least: 40},
}

func (c credentialForm) look(f *patternFinder, at int) int {
	if c.apart && at > 0 && isAlnum(f.s[at-1]) {
		return at
	}
	start := at + len(c.prefix)
	end, digit := start, !c.digit
	for end < len(f.s) && (isAlnum(f.s[end]) || strings.IndexByte(c.rest, f.s[end]) >= 0) {
		digit = digit || f.s[end] >= '0' && f.s[end] <= '9'
		if !digit && end-start > 64 {
			return at
		}
		end++
	}
	if end-start < c.least || !digit {
		return at
	}
	return f.cut(at, end)
}

// lookJWT: three parts, or at least a header that says so. Cursors that are JSON in
// base64 begin the same way and have no dots.
func lookJWT(f *patternFinder, at int) int {
	if at >= f.runEnd { // one look at a run of such characters is enough
		end := at
		for end < len(f.s) && (isAlnum(f.s[end]) || f.s[end] == '-' || f.s[end] == '_' || f.s[end] == '.') {
			end++
		}
		f.runEnd = end
		f.jwtEnd = at + len(strings.TrimRight(f.s[at:end], ".")) // without the end of a sentence
		f.lastDot = at + strings.LastIndexByte(f.s[at:f.jwtEnd], '.')
	}
	head := f.s[at:max(at, f.jwtEnd)]
	header := strings.HasPrefix(head, "eyJhbGciOi") || strings.HasPrefix(head, "eyJ0eXAiOi") || strings.HasPrefix(head, "eyJraWQiOi")
	if f.lastDot > at && len(head) >= 20 || header {
		return f.cut(at, f.jwtEnd)
	}
	return at
}

// lookPEM masks a private key's block, or a part of one.
func lookPEM(f *patternFinder, at int) int {
	rest := f.s[at:]
	line := rest[:min(len(rest), 80)]
	close := strings.Index(line[10:], "-----")
	if close < 0 || !strings.Contains(strings.ToUpper(line[:10+close]), "PRIVATE KEY") {
		return at
	}
	from := 10 + close + 5
	body := rest[from:min(len(rest), from+1<<16)]
	if end := strings.Index(body, "-----END"); end >= 0 {
		tail := body[end:min(len(body), end+80)]
		if stop := strings.Index(tail[8:], "-----"); stop >= 0 {
			return f.cut(at, at+from+end+8+stop+5)
		}
		return f.cut(at, at+from+end+8)
	}
	to := 0
	for to < len(body) && (IsBase64(body[to]) || strings.IndexByte("=\\ \r\n\t:,", body[to]) >= 0) {
		to++
	}
	return f.cut(at, at+from+to)
}

// notTokens are words that follow Bearer and Basic in a sentence or a challenge.
var notTokens = wordSet(`token tokens auth authentication authorization scheme schemes header headers realm error scope
	resource_metadata credential credentials of is and or in for to with from the a an was only usage flow type`)

func lookBearer(f *patternFinder, at int) int {
	from, to, word := schemeValue(f.s, at, 6)
	if word == "" || notTokens[strings.ToLower(word)] || f.s[at] == 'b' && len(word) < 16 && lowerLetters(word) {
		return at
	}
	return f.cut(from, to)
}

func lookBasic(f *patternFinder, at int) int {
	from, to, word := schemeValue(f.s, at, 5)
	if len(word) < 4 || notTokens[strings.ToLower(word)] || lowerLetters(word) || strings.Trim(word[1:], "abcdefghijklmnopqrstuvwxyz") == "" {
		return at
	}
	return f.cut(from, to)
}

// schemeValue is what follows the name of an authorization scheme. A word with a
// value of its own (realm="x") is none.
func schemeValue(s string, at, name int) (from, to int, word string) {
	if at > 0 && isAlnum(s[at-1]) {
		return 0, 0, ""
	}
	from = at + name
	switch {
	case strings.HasPrefix(s[from:], "%20"):
		from += 3
	case from < len(s) && (s[from] == ' ' || s[from] == '+' || s[from] == '\t'):
		for from < len(s) && from < at+name+8 && (s[from] == ' ' || s[from] == '+' || s[from] == '\t') {
			from++
		}
	default:
		return 0, 0, ""
	}
	to = from
	for to < len(s) && (IsBase64(s[to]) || strings.IndexByte(".~=%", s[to]) >= 0) {
		to++
	}
	if to < len(s) && (s[to] == '"' || s[to] == '\\') && to > from && s[to-1] == '=' && strings.Count(s[from:to], "=") == 1 && lowerLetters(strings.Trim(s[from:to-1], "_")) {
		return 0, 0, ""
	}
	return from, to, strings.TrimRight(s[from:to], ".")
}

func lowerLetters(s string) bool {
	for _, c := range []byte(s) {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// IsBase64 reports whether c may stand in base64, of either alphabet.
func IsBase64(c byte) bool {
	return isAlnum(c) || c == '+' || c == '/' || c == '-' || c == '_'
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
